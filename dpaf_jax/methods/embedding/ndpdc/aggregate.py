"""Phase 1: Poisson draws, and a noisy aggregate of each; the last that sees a record."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.methods.embedding.ndpdc.condensation import (
    AGGREGATE,
    Aggregates,
    Coins,
    Condensation,
)
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training.input_pipeline import (
    Feed,
    at_once,
    empty_sums,
    gather,
    poisson_records,
)
from dpaf_jax.training.run import Run


class AggregatePhase:
    """A step draws records, adds their rows in chunks, exactly, and noises the sum, once."""

    name = 'aggregate'

    def __init__(self, run: Run, method: Condensation):
        self._run, self._method = run, method
        self.total_steps = method.mechanism.steps
        self.images = method.mechanism.expected_batch_size
        self._feed = Feed(run)
        self._coins = parallel.pmapped(method.coins, run.devices)
        self._accumulate = parallel.pmapped(self._add, run.devices, donate=(0,))
        self._release_fn = parallel.pmapped(self._release, run.devices, donate=(0,))

    def init(self) -> Aggregates:
        number = self.total_steps
        made = Aggregates(
            jnp.zeros((number, 4), jnp.uint32), jnp.zeros((number, *self._method.table))
        )
        return jax.device_get(made)

    def charged(self, step: int) -> Mapping[str, int]:
        return {AGGREGATE: step}

    def picture(self, state: Aggregates) -> None:
        return None

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run = self._run
        seed = run.on_every_device(run.keys.public('coins', step))
        coins = self._coins(seed)
        sums = empty_sums(run, self._method.mechanism, self._method.table)
        for part in self._parts(self._draw(step)):
            dealt = self._feed.deal_one(part)
            sums = self._accumulate(sums, coins, self._feed.data, dealt)
        at = run.on_every_device(np.array(step, np.int32))
        key = run.on_every_device(run.keys.noise(AGGREGATE, step))
        return self._release_fn(state, sums, at, seed, key), step + 1, {}

    def _draw(self, step: int) -> Draw:
        return poisson_records(self._run, self._method.mechanism, step)

    def _parts(self, draw: Draw) -> Iterator[Draw]:
        """A draw in chunks of one shape, which does not depend on who was drawn."""
        slots, run = len(draw.indices), self._run
        most = at_once(run.data.images) * len(run.devices)
        size = -(-slots // -(-slots // most))
        for start in range(0, slots, size):
            part = slice(start, start + size)
            yield Draw(draw.indices[part], draw.is_padding_example[part]).padded(size)

    def _add(self, sums: Any, coins: Coins, data: Any, draw: Any) -> Any:
        return sums + self._method.query(coins, gather(data, draw))

    def _release(
        self, state: Aggregates, sums: Any, step: Any, seed: Any, key: Any
    ) -> Any:
        means = self._method.release(sums, key)
        return Aggregates(
            state.seeds.at[step].set(seed), state.means.at[step].set(means)
        )
