"""DPAF's phase 1: windows of DP-SGD steps of the classifier, or of the labeller."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dpaf_jax.methods.dpaf.draws import draw_records
from dpaf_jax.methods.dpaf.networks import Params, started
from dpaf_jax.methods.dpaf.phase1.classifier import Classifier, ClassifierState
from dpaf_jax.methods.dpaf.phase1.labeller import Labeller, LabellerState
from dpaf_jax.runtime import parallel
from dpaf_jax.training.input_pipeline import Feed, gather
from dpaf_jax.training.phase import repeat, window_steps
from dpaf_jax.training.run import Run

WINDOW = 8  # steps in one compiled call, where they are scanned


class ClassifierPhase:
    """Phase 1: at most `WINDOW` DP-SGD steps a call; one where they would be written out.

    XLA would first gather the images of all steps, or their features: gigabytes.
    """

    name = 'classifier'

    def __init__(
        self, run: Run, classifier: Classifier | Labeller, start: Params | None = None
    ):
        self._run, self._classifier = run, classifier
        self._length = 1 if run.unrolls else WINDOW
        self._mechanism, self._start = classifier.mechanism, start or {}
        self.total_steps = self._mechanism.steps
        self.images_per_step = self._mechanism.expected_batch_size
        self._compiled = parallel.pmapped(self._window, run.devices, donate=(0,))
        self._feed: Feed | None = None  # once a window asks for it

    def _make_feed(self, state: Any) -> Feed:
        del state
        return Feed(self._run)

    def init(self) -> ClassifierState | LabellerState:
        state = self._run.first_state(self._classifier.init, 'init classifier')
        known = {name: p for name, p in self._start.items() if name == 'conv1'}
        return state._replace(params=started(state.params, known))

    def charged(self, step: int) -> Mapping[str, int]:
        return {self._mechanism.name: step}

    def picture(self, state: Any) -> None:
        return None

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run, steps = self._run, window_steps(step, self._length)
        self._feed = self._feed or self._make_feed(state)
        draws = self._feed.deal([draw_records(run, self._mechanism, t) for t in steps])
        keys = np.stack([run.keys.noise(self._mechanism.name, t) for t in steps])
        state, metrics = self._compiled(
            state, self._feed.data, draws, run.on_every_device(keys)
        )
        return state, steps.stop, metrics

    def _window(self, state: Any, data: Any, draws: Any, keys: Any) -> Any:
        def body(state: Any, xs: Any) -> Any:
            draw, key = xs
            return self._classifier.step(state, gather(data, draw), key)

        return repeat(self._run.unrolls, body, state, (draws, keys))


class LabellerPhase(ClassifierPhase):
    """Phase 1 with a labeller: the features that it reads are computed once."""

    name = 'labeller'

    def _make_feed(self, state: Any) -> Feed:
        assert isinstance(self._classifier, Labeller)
        params = parallel.unreplicate(state).params
        return Feed(self._run, self._classifier.features, params)
