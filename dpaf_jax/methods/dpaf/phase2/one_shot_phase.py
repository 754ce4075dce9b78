"""DPAF's phase 2 where DPAGG sees every image: one noised aggregate a class, matched."""

import functools
import logging
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dpaf_jax.methods.dpaf.networks import Params
from dpaf_jax.methods.dpaf.phase2.conv2_update import conv2_step
from dpaf_jax.methods.dpaf.phase2.discriminator import head_steps
from dpaf_jax.methods.dpaf.phase2.gan import Gan, GanState, StepKeys
from dpaf_jax.methods.dpaf.phase2.generator_update import generator_step
from dpaf_jax.methods.dpaf.phase2.phase import GanPhase
from dpaf_jax.methods.dpaf.phase2.whitening import Factors, Whitening
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.input_pipeline import gather, sums_of_all
from dpaf_jax.training.phase import repeat, window_length, window_steps
from dpaf_jax.training.run import Run


class OneShotPhase(GanPhase):
    """Phase 2 where DPAGG sees every image (q = 1): few releases, much post-processing.

    A step is one generator step. Each release is followed by `schedule.generator_steps`
    on the aggregates released so far; that costs no epsilon, however many they are.
    """

    def __init__(self, run: Run, gan: Gan, learnt: Any, start: Params | None = None):
        super().__init__(run, gan, learnt, start)
        self._per_release = gan.schedule.generator_steps
        self._length = window_length(self._per_release, run.unrolls)
        self.images = self._fakes_until
        self.total_steps = gan.schedule.dpagg_steps * self._per_release
        pmapped = functools.partial(parallel.pmapped, devices=run.devices)
        self._accumulate = pmapped(self._add_chunk, donate=(0,))
        self._window_fn = pmapped(self._window, donate=(0,))
        self._update_fn = pmapped(self._update, donate=(0,))
        # Not donated: a pass behind them may be left, and then what was before is saved.
        self._release_fn = pmapped(gan.privatised)
        self._begin_fn = pmapped(self._begin_part)
        self._whitening = Whitening(run, gan)

    def charged(self, step: int) -> Mapping[str, int]:
        releases = -(-step // self._per_release)
        updates = releases // self._run.config.dpaf.asymmetry
        return {
            **self._before,
            'dpagg': -(-releases // self._gan.schedule.turns),
            **dict.fromkeys(self._gan.updates, updates),
        }

    def _fakes_until(self, step: int) -> float:
        """Steps of the first part may look at fewer."""
        schedule = self._gan.schedule
        first = min(step, schedule.updates_per_part)
        plain = first * schedule.fakes_per_aggregate(False)
        late = (step - first) * schedule.fakes_per_aggregate(True)
        return float((plain + late) * schedule.num_aggregates)

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run, release = self._run, step // self._per_release
        if step % self._per_release == 0:
            state = self._release(state, release)
        state, metric = self._measured(state, step)
        steps = window_steps(step, self._length)
        keys = jax.tree.map(
            lambda *k: np.stack(k), *[self._tick_keys(t) for t in steps]
        )
        keys = jax.tree.map(run.on_every_device, keys)
        state, metrics = self._window_fn(state, keys, metric)
        step = steps.stop
        done = step % self._per_release == 0
        if (
            done
            and self._gan.updates
            and (release + 1) % run.config.dpaf.asymmetry == 0
        ):
            draws = self._update_draws(release // run.config.dpaf.asymmetry)
            keys = jax.tree.map(run.on_every_device, self._keys(release))
            state = self._update_fn(state, self._feed.data, draws, keys)
        return state, step, metrics

    def _measured(self, state: Any, step: int) -> tuple[Any, Factors | None]:
        """The metric of this part of training; the first part has none."""
        gan, asked = self._gan, self._run.config.dpaf.generator
        if not step and asked.whitenings and not gan.schedule.whitenings:
            logging.info(
                "Not whitened: the aggregates' noise, %.3f, is longer than %g",
                gan.schedule.noise_length,
                gan.schedule.whiten_below,
            )
        part, into = divmod(step, gan.schedule.updates_per_part)
        if part and not into:
            state = self._begin_fn(state)
        return state, self._whitening.metric(state, part) if part else None

    def _begin_part(self, state: GanState) -> GanState:
        # The optimiser starts anew: Adam's moments are those of another, flatter loss.
        generator = state.generator
        anew = self._gan.optimizer('generator').init(generator.params)
        return state._replace(
            generator=generator._replace(opt_state=anew), reference=generator.ema_params
        )

    def _tick_keys(self, step: int) -> StepKeys:
        """Keys of post-processing; DPAGG's and the updates' own are not among them."""
        noise = self._run.keys.noise
        fake, public = noise('fake tick', step), self._run.keys.public('tick', step)
        return StepKeys(None, fake, {}, public)

    def _window(self, state: GanState, keys: StepKeys, metric: Factors | None) -> Any:
        def body(state: GanState, keys: StepKeys) -> Any:
            metrics: dict[str, jax.Array] = {}
            if self._gan.schedule.trains_head:
                state, metrics = head_steps(self._gan, state, keys)
            state, made = generator_step(self._gan, state, keys, metric=metric)
            return state, metrics | made

        return repeat(self._run.unrolls, body, state, keys)

    def _update(self, state: GanState, data: Any, draws: Any, keys: Any) -> Any:
        for name, draw in draws.items():
            batch = gather(data, draw)
            state = conv2_step(self._gan, state, batch, keys, name)
        return state

    def _add_chunk(self, sums: Any, params: Any, batch: ClipBatch) -> Any:
        return sums + self._gan.aggregator.query(params, batch)

    def _release(self, state: Any, release: int) -> Any:
        """One pass over all records of this turn's classes, then noise, once."""
        run, active = self._run, self._gan.schedule.active(release)
        present = active[run.data.labels] if self._gan.schedule.class_pure else None
        shape = state.latest.shape[1:]

        def add(sums: Any, chunk: ClipBatch) -> Any:
            return self._accumulate(sums, state.params, chunk)

        sums = sums_of_all(run, self._gan.schedule.dpagg, shape, add, present)
        key = run.keys.noise('dpagg', release)
        return self._release_fn(
            state, sums, run.on_every_device(active), run.on_every_device(key)
        )
