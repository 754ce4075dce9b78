"""The release in front of the first generator step, then generator steps alone."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from PIL import Image

from dpaf_jax.methods.embedding.matching import Matching, MatchState
from dpaf_jax.methods.embedding.plan import EMBEDDING
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.input_pipeline import sums_of_all
from dpaf_jax.training.phase import Metrics, repeat, window_length, window_steps
from dpaf_jax.training.run import Run


class MatchPhase:
    """One release, then as many steps as are wanted: they cost no epsilon."""

    name = 'generator'

    def __init__(self, run: Run, matching: Matching):
        self._run, self._matching = run, matching
        self.total_steps = matching.settings.generator_steps
        self.images = float(matching.settings.batch_size)
        self._length = window_length(self.total_steps, run.unrolls)
        self._accumulate = parallel.pmapped(self._add, run.devices, donate=(0,))
        self._release_fn = parallel.pmapped(matching.release, run.devices, donate=(0,))
        self._window_fn = parallel.pmapped(self._window, run.devices, donate=(0,))

    def init(self) -> MatchState:
        return self._run.first_state(self._matching.init, 'init embedding')

    def charged(self, step: int) -> Mapping[str, int]:
        return {EMBEDDING: min(step, 1)}

    def picture(self, state: MatchState) -> Image.Image:
        return self._run.picture(state.generator.ema_params)

    def window(self, state: Any, step: int) -> tuple[Any, int, Metrics]:
        if step == 0:
            state = self._release(state)
        steps = window_steps(step, self._length)
        keys = np.stack([self._run.keys.public('step', t) for t in steps])
        state, metrics = self._window_fn(state, self._run.on_every_device(keys))
        return state, steps.stop, metrics

    def _window(self, state: MatchState, keys: jax.Array) -> Any:
        return repeat(self._run.unrolls, self._matching.generator_step, state, keys)

    def _add(self, sums: Any, coins: Any, batch: ClipBatch) -> Any:
        return sums + self._matching.query(coins, batch)

    def _release(self, state: Any) -> Any:
        """One pass over all records, then noise, once."""
        run, shape = self._run, state.embedding.shape[1:]

        def add(sums: Any, chunk: ClipBatch) -> Any:
            return self._accumulate(sums, state.coins, chunk)

        sums = sums_of_all(run, self._matching.mechanism, shape, add)
        key = run.keys.noise(EMBEDDING, 0)
        return self._release_fn(state, sums, run.on_every_device(key))
