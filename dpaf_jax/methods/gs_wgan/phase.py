"""Training of critics and generator: whose turn it is, and which records are whose.

Which critic a record is behind is decided by an independent coin of its index, so the
others' places do not depend on it.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import optax
from PIL import Image

from dpaf_jax.methods.gs_wgan.plan import GRADIENT, turns_of_one
from dpaf_jax.methods.gs_wgan.turn import GsWgan, GsWganState
from dpaf_jax.privacy.accounting import capacity_for
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training.input_pipeline import Feed, gather
from dpaf_jax.training.phase import Metrics
from dpaf_jax.training.run import Run

CUT = 1e-9  # chance that one critic has more records than slots; what is cut is unused


def train(run: Run) -> Any:
    """Trains critics and generator in turn; returns the average of the generator."""
    method = GsWgan(run.config, run.plan, len(run.devices))
    return run.train(GsWganPhase(run, method)).generator.ema_params


class GsWganPhase:
    """One turn a window."""

    name = 'gan'

    def __init__(self, run: Run, method: GsWgan):
        self._run, self._method = run, method
        self.total_steps = method.settings.generator_steps
        settings = method.settings
        records = settings.batch_size * len(self._whose(0))
        self.images = float(records * settings.discriminator_steps)
        self._turn_fn = parallel.pmapped(self._turn, run.devices, (0,))
        self._feed = Feed(run)

    def init(self) -> GsWganState:
        return self._run.first_state(self._method.init, 'init gan')

    def charged(self, step: int) -> Mapping[str, int]:
        if self._published:
            return {GRADIENT: step * self._method.settings.generator_batch_size}
        method = self._method
        return {GRADIENT: turns_of_one(method.settings, method.critics, step)}

    def picture(self, state: GsWganState) -> Image.Image:
        return self._run.picture(state.generator.ema_params)

    def window(self, state: Any, step: int) -> tuple[Any, int, Metrics]:
        run, turn = self._run, self._whose(step)
        keys = run.keys.noise(GRADIENT, step), run.keys.public('step', step)
        rest = [run.on_every_device(x) for x in (*keys, np.array(turn, np.int32))]
        dealt = self._feed.deal([self._records(k) for k in turn])
        state, metrics = self._turn_fn(state, self._feed.data, dealt, *rest)
        return state, step + 1, metrics

    @property
    def _published(self) -> bool:
        return self._run.config.privacy.as_published

    def _whose(self, step: int) -> list[int]:
        """The critics whose turn it is: a round-robin; as published, any one of them."""
        number, together = self._method.critics, self._method.settings.critics_per_turn
        if self._published:
            return [int(self._run.keys.rng('turn', step).integers(number))]
        return [(step * together + i) % number for i in range(together)]

    @functools.cached_property
    def _owner(self) -> np.ndarray:
        """[n] the critic of each record, by an independent coin of its index; private."""
        rng, data = self._run.keys.lasting('partition'), self._run.data
        size = data.manifest.num_examples
        return rng.integers(self._method.critics, size=size)[data.index]

    def _records(self, k: int) -> Draw:
        total = self._method.plan.num_examples
        slots = capacity_for(total, 1 / self._method.critics, CUT)
        own = np.flatnonzero(self._owner == k)[:slots]
        indices = np.zeros((slots, 1), np.int32)
        indices[: len(own), 0] = own
        return Draw(indices, np.arange(slots)[:, None] >= len(own))

    def _turn(
        self, state: Any, data: Any, draw: Any, *rest: Any
    ) -> tuple[Any, Metrics]:
        state, noisy = self._method.turn(state, gather(data, draw), *rest)
        return state, {'noisy_gradient_norm': optax.tree.norm(noisy)}
