"""DPAF's phase 1: windows of DP-SGD steps of the classifier, or of the labeller."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpaf_jax.methods.dpaf.draws import draw_records
from dpaf_jax.methods.dpaf.networks import Params, started
from dpaf_jax.methods.dpaf.phase1.classifier import Classifier, ClassifierState
from dpaf_jax.methods.dpaf.phase1.labeller import Labeller, LabellerState
from dpaf_jax.methods.dpaf.plan import WINDOW
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training.input_pipeline import Feed
from dpaf_jax.training.run import Run
from dpaf_jax.training.sampled_phase import SampledPhase


class ClassifierPhase(SampledPhase):
    """Phase 1: at most `WINDOW` DP-SGD steps a call; one where they would be written out.

    XLA would first gather the images of all steps, or their features: gigabytes.
    """

    name = 'classifier'

    def __init__(
        self, run: Run, classifier: Classifier | Labeller, start: Params | None = None
    ):
        method: Any = classifier  # whose steps get no public coins
        super().__init__(run, method, unrolls=run.unrolls)
        self._length = 1 if run.unrolls else WINDOW
        self._known = {n: p for n, p in (start or {}).items() if n == 'conv1'}

    def init(self) -> ClassifierState | LabellerState:
        state = self._run.first_state(self._method.init, 'init classifier')
        return state._replace(params=started(state.params, self._known))

    def charged(self, step: int) -> Mapping[str, int]:
        return {self._mechanism.name: step}

    def picture(self, state: Any) -> None:
        return None

    def _draw(self, step: int) -> Draw:
        return draw_records(self._run, self._mechanism, step)

    def _keys(self, step: int) -> tuple[np.ndarray, ...]:
        return (self._run.keys.noise(self._mechanism.name, step),)


class LabellerPhase(ClassifierPhase):
    """Phase 1 with a labeller: the features that it reads are computed once."""

    name = 'labeller'

    def _make_feed(self, state: Any) -> Feed:
        labeller: Any = self._method
        params = parallel.unreplicate(state).params
        return Feed(self._run, labeller.features, params)
