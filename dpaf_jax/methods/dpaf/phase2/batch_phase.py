"""DPAF's phase 2 on small batches: which records, keys and schedule go into a window."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from dpaf_jax.methods.dpaf.draws import draw_records
from dpaf_jax.methods.dpaf.networks import Params
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.phase2.phase import GanPhase
from dpaf_jax.privacy.sampling import Draw, packed
from dpaf_jax.runtime import parallel
from dpaf_jax.training.run import Run


class BatchPhase(GanPhase):
    """Phase 2 on small batches: mu DPAGG steps and one conv2* update a call.

    Args:
        run: the run.
        gan: the parts.
        learnt: by phase 1.
        window: the pure function of a window, `train.window`.
        start: of `warm_start`.
    """

    def __init__(
        self,
        run: Run,
        gan: Gan,
        learnt: Any,
        window: Callable,
        start: Params | None = None,
    ):
        super().__init__(run, gan, learnt, start)
        self.total_steps = gan.schedule.dpagg_steps
        self._mu = run.config.dpaf.asymmetry
        self._pure = functools.partial(window, gan, unrolls=run.unrolls)
        self._compiled: Callable[..., Callable] = functools.cache(self._compile)

    def charged(self, step: int) -> Mapping[str, int]:
        return {
            **self._before,
            'dpagg': -(-step // self._gan.schedule.turns),
            **dict.fromkeys(self._gan.updates, step // self._mu),
        }

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run, schedule = self._run, self._gan.schedule
        steps = range(step, step + self._mu)
        draws = [
            draw_records(run, schedule.dpagg, t, self._eligible[t % schedule.turns])
            for t in steps
        ]
        keys = [self._keys(t) for t in steps]
        xs = {
            'keys': jax.tree.map(
                run.on_every_device, jax.tree.map(lambda *k: np.stack(k), *keys)
            ),
            'active': run.on_every_device(
                np.stack([schedule.active(t) for t in steps])
            ),
        }
        updates = tuple(schedule.updates_generator(t) for t in steps)
        if not run.unrolls:  # known to the program only when it runs
            xs['updates_generator'] = run.on_every_device(np.array(updates))
        update_draws = self._update_draws(step // self._mu)
        compiled = self._compiled(updates if run.unrolls else None)
        state, metrics = compiled(
            state, self._feed.data, self._packed(draws, step), xs, update_draws
        )
        return state, step + self._mu, metrics

    def _packed(self, draws: list[Draw], step: int) -> dict[str, np.ndarray]:
        """A window's draws, which all meet the same features, dealt as one."""
        rng = self._run.keys.rng('dpagg/slots', step)
        whole, segment_ids = packed(draws, self._slots(draws), rng)
        return self._feed.deal_one(whole, segment_ids=segment_ids)

    def _slots(self, draws: list[Draw]) -> int:
        del draws  # how many a draw has is private
        return self._gan.schedule.dpagg.capacity

    def _compile(self, updates: tuple[bool, ...] | None) -> Callable:
        """One program per pattern of generator steps where windows are unrolled."""

        def program(state: Any, data: Any, draw: Any, xs: Any, others: Any) -> Any:
            if updates is not None:
                xs = {**xs, 'updates_generator': np.array(updates)}
            return self._pure(state, data, draw, xs, others)

        return parallel.pmapped(program, self._run.devices, donate=(0,))
