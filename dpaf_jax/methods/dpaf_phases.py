"""DPAF's phases: which records, keys and turns go into which compiled window.

A window is a whole number of steps in one compiled call: scanned on accelerators,
unrolled on CPU. The host draws the coins; images stay on the device where they fit.
"""

import functools
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from dpaf_jax import parallel
from dpaf_jax.classifier import Classifier, ClassifierState
from dpaf_jax.conv2_update import conv2_step
from dpaf_jax.feed import Feed, every_record, gather
from dpaf_jax.gan import Gan, GanState, StepKeys
from dpaf_jax.generator_update import generator_step
from dpaf_jax.labeller import Labeller, LabellerState
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.privacy.sampling import (
    Draw,
    fitted,
    packed,
    poisson_draw,
    shuffled_batches,
)
from dpaf_jax.run import Run
from dpaf_jax.samplers import LABELLER, latent_sampler, preview
from dpaf_jax.units import Units
from dpaf_jax.whitening import Factors, Whitening
from dpaf_jax.windows import repeat, stack, summary

WINDOW = 8  # classifier steps in one compiled call
GENERATOR_WINDOW = 10  # at most so many generator steps in one compiled call


def _draw(run: Run, mechanism: Mechanism, step: int, eligible: Any = None) -> Draw:
    if run.config.privacy.guarantee == 'as_published':
        size = int(mechanism.expected_batch_size)
        return shuffled_batches(
            len(run.data.labels), size, mechanism.name, run.keys, step
        )
    if eligible is None:
        # The plan's N may count empty records; drawn or not, they add nothing.
        eligible = len(run.data.labels)
    return poisson_draw(mechanism, eligible, run.keys, step)


class ClassifierPhase:
    """Phase 1: at most `WINDOW` DP-SGD steps a call."""

    name = 'classifier'

    def __init__(self, run: Run, classifier: Classifier | Labeller):
        self._run, self._classifier, self._length = run, classifier, WINDOW
        self._mechanism = classifier.mechanism
        self.total_steps = self._mechanism.steps
        self.images_per_step = self._mechanism.expected_batch_size
        self._compiled = parallel.pmapped(self._window, run.devices, donate=(0,))

    @functools.cached_property
    def _feed(self) -> Feed:
        return Feed(self._run)

    def init(self) -> ClassifierState | LabellerState:
        key = public_key(self._run.keys.public('init classifier', 0))
        return jax.device_get(jax.jit(self._classifier.init)(key))

    def charged(self, step: int) -> Mapping[str, int]:
        return {self._mechanism.name: step}

    def picture(self, state: Any) -> None:
        return None

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run, steps = self._run, range(step, step + self._length)
        drawn = [_draw(run, self._mechanism, t) for t in steps]
        draws = self._feed.deal(fitted(drawn, self._mechanism))
        keys = np.stack([run.keys.noise(self._mechanism.name, t) for t in steps])
        state, metrics = self._compiled(
            state, self._feed.data, draws, run.on_every_device(keys)
        )
        return state, step + self._length, metrics

    def _window(self, state: Any, data: Any, draws: Any, keys: Any) -> Any:
        def body(state: Any, xs: Any) -> Any:
            draw, key = xs
            return self._classifier.step(state, gather(data, draw), key)

        return repeat(self._run, body, state, (draws, keys))


class LabellerPhase(ClassifierPhase):
    """Phase 1 with a labeller: the features that it reads are computed once."""

    def __init__(self, run: Run, labeller: Labeller):
        super().__init__(run, labeller)
        if run.unrolls:
            # XLA would first gather the features of all steps, gigabytes on 50 000 images.
            self._length = 1

    @functools.cached_property
    def _feed(self) -> Feed:
        assert isinstance(self._classifier, Labeller)
        return Feed(self._run, self._classifier.features)


class _DiscriminatorPhase:
    """What both kinds of phase 2 share."""

    name = 'gan'
    total_steps: int

    def __init__(self, run: Run, gan: Gan, learnt: Any):
        self._run, self._gan, self._learnt = run, gan, learnt
        self._turns, self._releases = gan.turns, gan.releases
        self.images_per_step = gan.dpagg.expected_batch_size
        phase1 = [m for m in run.plan.mechanisms if m.name in ('conv1', LABELLER)]
        self._before = {m.name: m.steps for m in phase1}

    def init(self) -> GanState:
        key = public_key(self._run.keys.public('init gan', 0))
        return jax.device_get(jax.jit(self._gan.init)(key, self._learnt))

    def picture(self, state: GanState) -> Image.Image:
        key = public_key(self._run.keys.public('picture', 0))
        generator = latent_sampler(self._run.config)
        return preview(self._run.config, state.average, key, sampler=generator)

    @functools.cached_property
    def _feed(self) -> Feed:
        return Feed(self._run)

    def _turn(self, step: int) -> np.ndarray:
        """[A] bool: whose turn it is at DPAGG step `step`; a public round-robin."""
        number = self._gan.num_aggregates // self._turns
        return np.arange(self._gan.num_aggregates) // number == step % self._turns

    @functools.cached_property
    def _eligible(self) -> list[Any]:
        """Records of each turn's classes; private, like every index."""
        if self._turns == 1:
            return [None]
        labels = np.asarray(self._run.data.labels)
        return [
            np.flatnonzero(np.isin(labels, np.flatnonzero(self._turn(t))))
            for t in range(self._turns)
        ]

    def _keys(self, step: int) -> StepKeys:
        noise = self._run.keys.noise
        update = step // self._run.config.dpaf.asymmetry
        return StepKeys(
            real_noise=noise('dpagg', step),
            fake_noise=noise('fake', step),
            conv2_noise=noise('conv2', update),
            public=self._run.keys.public('step', step),
        )

    def _conv2_draw(self, update: int) -> dict[str, np.ndarray]:
        mechanism = self._run.plan['conv2']
        draws = fitted([_draw(self._run, mechanism, update)], mechanism)
        return self._feed.deal_one(draws[0])


class GanPhase(_DiscriminatorPhase):
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
            _draw(run, self._gan.dpagg, t, self._eligible[t % self._turns])
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
        draw = self._packed(draws)
        args: tuple[Any, ...] = (state, self._feed.data, draw, xs, conv2_draw)
        if not run.unrolls:
            args += (run.on_every_device(np.array(updates)),)
        state, metrics = self._fn(updates if run.unrolls else None)(*args)
        return state, step + self._mu, metrics

    def _packed(self, draws: list[Draw]) -> dict[str, np.ndarray]:
        """A window's draws, which all meet the same features, dealt as one."""
        whole, owner = packed(draws, self._gan.dpagg)
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


class TablePhase(_DiscriminatorPhase):
    """Phase 2 where DPAGG sees every image (q = 1): few releases, much post-processing.

    A step is one generator step. Each release is followed by `generator_steps` of them
    on the aggregates released so far; that costs no epsilon, however many they are.
    """

    def __init__(self, run: Run, gan: Gan, learnt: Any):
        super().__init__(run, gan, learnt)
        dpaf = run.config.dpaf
        self._per_release = dpaf.generator_steps
        self._length = math.gcd(self._per_release, GENERATOR_WINDOW)
        self.total_steps = self._releases * self._per_release
        self.images_per_step = dpaf.generator.batch_size
        pmapped = functools.partial(parallel.pmapped, devices=run.devices)
        self._accumulate = pmapped(self._add_chunk, donate=(0,))
        self._release_fn = pmapped(gan.release, donate=(0,))
        self._window_fn = pmapped(self._window, donate=(0,))
        self._conv2_fn = pmapped(self._update_conv2, donate=(0,))
        self._begin = pmapped(self._begin_part, donate=(0,))
        self._whitening = Whitening(run, gan)
        self._part = 0  # of training, whose metric it is; the first has none
        self._metric: Factors | None = None

    def charged(self, step: int) -> Mapping[str, int]:
        releases = -(-step // self._per_release)
        return {
            **self._before,
            'dpagg': -(-releases // self._turns),
            'conv2': releases // self._run.config.dpaf.asymmetry,
        }

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        run, release = self._run, step // self._per_release
        if step % self._per_release == 0:
            state = self._release(state, release)
        state, metric = self._measured(state, step)
        steps = range(step, step + self._length)
        keys = jax.tree.map(
            lambda *k: np.stack(k), *[self._tick_keys(t) for t in steps]
        )
        keys = jax.tree.map(run.on_every_device, keys)
        state, metrics = self._window_fn(state, keys, metric)
        step += self._length
        done = step % self._per_release == 0
        if (
            done
            and 'conv2' in run.plan
            and (release + 1) % run.config.dpaf.asymmetry == 0
        ):
            draw = self._conv2_draw(release // run.config.dpaf.asymmetry)
            keys = jax.tree.map(run.on_every_device, self._keys(release))
            state = self._conv2_fn(state, self._feed.data, draw, keys)
        return state, step, metrics

    def _measured(self, state: Any, step: int) -> tuple[Any, Factors | None]:
        """The metric of this part of training, made anew where a part begins.

        A run that goes on makes its part's metric again, from the generator of then.
        """
        gan, asked = self._gan, self._run.config.dpaf.generator
        if not step and asked.whitenings and not gan.whitenings:
            logging.info(
                "Not whitened: the table's noise, %.3f, is longer than whiten_below = %g",
                gan.noise_length,
                asked.whiten_below,
            )
        windows = self.total_steps // self._length
        parts = gan.whitenings + 1
        part, into = divmod(step // self._length, -(-windows // parts))
        if part and not into:
            state = self._begin(state)
        if part != self._part:
            logging.info('Measuring the spread of fakes, %d of %d', part, parts - 1)
            self._part, self._metric = part, self._whitening.metric(state, part)
        return state, self._metric

    def _begin_part(self, state: GanState) -> GanState:
        # The optimiser starts anew: Adam's moments are those of another, flatter loss.
        optimizer = self._gan.optimizer('generator').init(state.generator)
        return state._replace(reference=state.average, generator_optimizer=optimizer)

    def _tick_keys(self, step: int) -> StepKeys:
        """Keys of post-processing; DPAGG's and conv2*'s own are not among them."""
        noise = self._run.keys.noise
        fake, public = noise('fake tick', step), self._run.keys.public('tick', step)
        return StepKeys(np.zeros_like(fake), fake, np.zeros_like(fake), public)

    def _window(self, state: GanState, keys: StepKeys, metric: Factors | None) -> Any:
        def body(state: GanState, keys: StepKeys) -> Any:
            metrics: dict[str, jax.Array] = {}
            if self._gan.trains_head:
                known = (state.releases > 0).astype(jnp.float32)
                state, metrics = self._gan.head_step(state, known, keys)
            state, made = generator_step(self._gan, state, keys, metric=metric)
            return state, metrics | made

        return repeat(self._run, body, state, keys)

    def _update_conv2(self, state: GanState, data: Any, draw: Any, keys: Any) -> Any:
        return conv2_step(self._gan, state, gather(data, draw), keys)

    def _add_chunk(self, sums: Any, params: Any, units: Units) -> Any:
        return sums + self._gan.query(params, units)

    def _release(self, state: Any, release: int) -> Any:
        """One pass over all records of this turn's classes, then noise, once."""
        run, turn = self._run, self._turn(release)
        shape, grid = state.latest.shape[1:], self._gan.dpagg.grid
        nothing = grid.nothing(shape) if grid else np.zeros(shape, np.float32)
        sums = parallel.replicate(nothing, run.devices)
        present = turn[run.data.labels] if self._gan.class_pure else None
        for chunk in every_record(run, present):
            sums = self._accumulate(sums, state.params, chunk)
        key = run.keys.noise('dpagg', release)
        return self._release_fn(
            state, sums, run.on_every_device(turn), run.on_every_device(key)
        )
