"""Phase 2: the images are fitted to the aggregates, as often as one likes."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from PIL import Image

from dpaf_jax.methods.embedding.ndpdc.condensation import (
    AGGREGATE,
    Aggregates,
    Condensation,
)
from dpaf_jax.runtime import parallel
from dpaf_jax.training.optimizers import TrainState
from dpaf_jax.training.phase import repeat, window_length, window_steps
from dpaf_jax.training.run import Run


class CondensePhase:
    """Steps on all images, an aggregate each, in turn; no record is read.

    Every device does the same: the images are few.

    Args:
        run: whose data are not read.
        method: loss and optimiser.
        released: of phase 1, on the host.
    """

    name = 'condense'

    def __init__(self, run: Run, method: Condensation, released: Aggregates):
        self._run, self._method, self._released = run, method, released
        self.total_steps = method.settings.steps
        self.images = float(method.sampler.number * run.config.data.num_classes)
        self._length = window_length(self.total_steps, run.unrolls)
        self._window_fn = parallel.pmapped(self._window, run.devices, donate=(0,))

    def init(self) -> TrainState:
        return self._run.first_state(self._method.init, 'init images')

    def charged(self, step: int) -> Mapping[str, int]:
        return {AGGREGATE: self._method.mechanism.steps}

    def picture(self, state: TrainState) -> Image.Image:
        return self._run.picture(state.ema_params)

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        steps = window_steps(step, self._length)
        turns = np.array(steps) % len(self._released.seeds)
        chosen = [np.asarray(part)[turns] for part in self._released]
        dealt = map(self._run.on_every_device, chosen)
        state, metrics = self._window_fn(state, *dealt)
        return state, steps.stop, metrics

    def _window(self, state: TrainState, seeds: Any, means: Any) -> Any:
        def step(state: TrainState, xs: Any) -> Any:
            return self._method.condense_step(state, *xs)

        return repeat(self._run.unrolls, step, state, (seeds, means))
