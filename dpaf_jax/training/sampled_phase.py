"""A phase whose steps each draw records of their own: the shape of DP-SGD."""

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np
from PIL import Image

from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.input_pipeline import Feed, gather, poisson_records
from dpaf_jax.training.phase import Metrics, repeat, window_length, window_steps
from dpaf_jax.training.run import Run


class SampledMethod(Protocol):
    """What a method brings: one mechanism, and what its noisy sums change."""

    @property
    def mechanism(self) -> Mechanism:
        """The one of the plan that every step belongs to."""

    def init(self, key: jax.Array, *start: Any, **_: Any) -> Any:
        """The state in front of the first step: public coins, and what is there already."""

    def step(
        self, state: Any, batch: ClipBatch, noise_key: jax.Array, key: jax.Array
    ) -> tuple[Any, Metrics]:
        """One update.

        Args:
            state: before; `picture` asks for its `ema_params`.
            batch: this device's share of a Poisson draw.
            noise_key: [8] uint32 of this step alone.
            key: [4] uint32 of public coins, equal on all devices.
        """


class SampledPhase:
    """Some steps a window, each with a Poisson draw among all records.

    Args:
        run: its data, keys and devices.
        method: what a step does.
        start: what its `init` reads besides coins: released by phases before.
        unrolls: whether steps are written out one by one: where a loop is slow.
    """

    name = 'generator'

    def __init__(self, run: Run, method: SampledMethod, *start: Any, unrolls: bool):
        self._run, self._method, self._start = run, method, start
        self._unrolls = unrolls
        self._mechanism = method.mechanism
        self.total_steps = self._mechanism.steps
        self.images = self._mechanism.expected_batch_size
        self._length = window_length(self.total_steps, unrolls)
        self._compiled = parallel.pmapped(self._steps, run.devices, donate=(0,))
        self._feed: Feed | None = None  # once a window asks for it

    def init(self) -> Any:
        purpose = f'init {self.name}'
        return self._run.first_state(self._method.init, purpose, *self._start)

    def charged(self, step: int) -> Mapping[str, int]:
        before = {m.name: m.steps for m in self._run.plan}
        return {**before, self._mechanism.name: step}

    def picture(self, state: Any) -> Image.Image | None:
        return self._run.picture(state.ema_params)

    def window(self, state: Any, step: int) -> tuple[Any, int, Metrics]:
        steps = window_steps(step, self._length)
        self._feed = self._feed or self._make_feed(state)
        dealt = self._feed.deal([self._draw(t) for t in steps])
        by_kind = zip(*map(self._keys, steps), strict=True)
        keys = [self._run.on_every_device(np.stack(each)) for each in by_kind]
        state, metrics = self._compiled(state, self._feed.data, dealt, *keys)
        return state, steps.stop, metrics

    def _make_feed(self, state: Any) -> Feed:
        del state
        return Feed(self._run)

    def _draw(self, step: int) -> Draw:
        return poisson_records(self._run, self._mechanism, step)

    def _keys(self, step: int) -> tuple[np.ndarray, ...]:
        """What the method's step gets besides its batch."""
        keys = self._run.keys
        return keys.noise(self._mechanism.name, step), keys.public('step', step)

    def _steps(self, state: Any, data: Any, draws: Any, *keys: Any) -> Any:
        def body(state: Any, xs: Any) -> tuple[Any, Metrics]:
            draw, *own = xs
            return self._method.step(state, gather(data, draw), *own)

        return repeat(self._unrolls, body, state, (draws, *keys))
