"""DPAF's phase 2 on small batches, as the paper has it."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.methods.dpaf.conv2_update import conv2_step
from dpaf_jax.methods.dpaf.gan import Gan, GanState
from dpaf_jax.methods.dpaf.generator_update import generator_step
from dpaf_jax.methods.dpaf.phase import DiscriminatorPhase, draw_records
from dpaf_jax.privacy.sampling import Draw, packed
from dpaf_jax.runtime import parallel
from dpaf_jax.training.input_pipeline import gather
from dpaf_jax.training.run import Run
from dpaf_jax.training.windows import stack, summary


class GanPhase(DiscriminatorPhase):
    """Phase 2 on small batches: mu DPAGG steps and one conv2* update a call.

    In Algorithm 1 conv2* precedes the generator where both fall on one step; here it
    follows, so that the generator always meets the features of the latest aggregates.
    """

    def __init__(self, run: Run, gan: Gan, learnt: Any):
        super().__init__(run, gan, learnt)
        self.total_steps = self._releases
        self._mu = run.config.dpaf.asymmetry
        self._compiled: dict[Any, Callable] = {}

    def charged(self, step: int) -> Mapping[str, int]:
        return {
            **self._before,
            'dpagg': -(-step // self._turns),
            'conv2': step // self._mu,
        }

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run, steps = self._run, range(step, step + self._mu)
        draws = [
            draw_records(run, self._gan.dpagg, t, self._eligible[t % self._turns])
            for t in steps
        ]
        xs = {
            'keys': jax.tree.map(
                run.on_every_device,
                jax.tree.map(lambda *k: np.stack(k), *[self._keys(t) for t in steps]),
            ),
            'turn': run.on_every_device(np.stack([self._turn(t) for t in steps])),
        }
        updates = tuple((t + 1) % run.config.dpaf.n_critic == 0 for t in steps)
        conv2_draw = {}
        if 'conv2' in run.plan and not self._gan.published:
            conv2_draw = self._conv2_draw(step // self._mu)
        draw = self._packed(draws, step)
        args: tuple[Any, ...] = (state, self._feed.data, draw, xs, conv2_draw)
        if not run.unrolls:
            args += (run.on_every_device(np.array(updates)),)
        state, metrics = self._fn(updates if run.unrolls else None)(*args)
        return state, step + self._mu, metrics

    def _packed(self, draws: list[Draw], step: int) -> dict[str, np.ndarray]:
        """A window's draws, which all meet the same features, dealt as one."""
        slots = self._gan.dpagg.capacity
        if self._gan.published:  # batches of one size: no slot is empty
            slots = sum(len(draw.indices) for draw in draws)
        coins = self._run.keys.coins('dpagg/slots', step)
        whole, owner = packed(draws, slots, coins)
        devices = self._run.devices
        dealt = parallel.deal(owner, len(devices), 0, 0)[parallel.mine(devices)]
        return self._feed.deal_one(whole) | {'owner': dealt}

    def _fn(self, updates: tuple[bool, ...] | None) -> Callable:
        """One program per pattern of generator steps where windows are unrolled."""
        if updates not in self._compiled:
            fn = functools.partial(self._window, static_updates=updates)
            self._compiled[updates] = parallel.pmapped(
                fn, self._run.devices, donate=(0,)
            )
        return self._compiled[updates]

    def _window(
        self,
        state: GanState,
        data: Any,
        draw: Any,
        xs: Any,
        conv2_draw: Any,
        updates: jax.Array | None = None,
        *,
        static_updates: tuple[bool, ...] | None,
    ) -> Any:
        units = gather(data, draw)
        sums = self._gan.queries(state.params, units, draw['owner'], self._mu)
        xs = {**xs, 'sums': sums}
        if static_updates is not None:
            rows = []
            for i, update in enumerate(static_updates):
                x = jax.tree.map(lambda leaf, i=i: leaf[i], xs)
                state, metrics = self._step(state, x)
                if update:
                    state, made = self._generator(state, x)
                    metrics = metrics | made
                rows.append(metrics)
            metrics = stack(rows)
        else:
            state, metrics = jax.lax.scan(self._scanned, state, (xs, updates))
        if 'conv2' in self._run.plan:
            owner = None
            if self._gan.published:  # the latest batches once more, as printed
                owner = draw['owner']
            else:
                units = gather(data, conv2_draw)
            keys = jax.tree.map(lambda leaf: leaf[-1], xs['keys'])
            state = conv2_step(self._gan, state, units, keys, owner)
        return state, summary(metrics)

    def _scanned(self, state: GanState, xs: Any) -> Any:
        x, update = xs
        state, metrics = self._step(state, x)
        shapes = jax.eval_shape(lambda s: self._generator(s, x)[1], state)
        nothing = jax.tree.map(lambda s: jnp.full(s.shape, jnp.nan, s.dtype), shapes)
        state, made = jax.lax.cond(
            update, lambda s: self._generator(s, x), lambda s: (s, nothing), state
        )
        return state, metrics | made

    def _step(self, state: GanState, x: Any) -> Any:
        """DPAGG in the forward pass, then conv3* and FC* on its output."""
        state = self._gan.release(state, x['sums'], x['turn'], x['keys'].real_noise)
        if not self._gan.trains_head:
            return state, {}
        return self._gan.head_step(state, x['turn'], x['keys'])

    def _generator(self, state: GanState, x: Any) -> Any:
        metrics: dict[str, jax.Array] = {}
        for inner in range(self._run.config.dpaf.generator_steps):
            state, metrics = generator_step(self._gan, state, x['keys'], inner)
        return state, metrics
