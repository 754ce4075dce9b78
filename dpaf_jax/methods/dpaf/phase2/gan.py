"""Phase 2 of DPAF: its parts, its state, its keys.

A private image enters phase 2 in two places, each with a Poisson sample of its own: in
aggregator.py, where its bounded row is summed into one aggregate and noised, and in
conv2_update.py. All that trains conv3*, FC* (discriminator.py) and the generator
(generator_update.py) reads the noised aggregates.
"""

import dataclasses
import enum
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.networks import Networks, Params, make_networks
from dpaf_jax.methods.dpaf.phase2 import targets
from dpaf_jax.methods.dpaf.phase2.aggregator import Aggregator
from dpaf_jax.methods.dpaf.phase2.schedule import Schedule
from dpaf_jax.methods.dpaf.taps.features import init_taps
from dpaf_jax.methods.dpaf.taps.layout import TapLayout, make_tap_layout
from dpaf_jax.privacy import chacha
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release.samplers.latent import LatentSampler
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import prior_labels, share_of_fakes
from dpaf_jax.training.optimizers import TrainState, make_optimizer


class GanState(NamedTuple):
    """Everything that persists between steps; all of it is noised or public.

    Attributes:
        params: {'conv1', 'conv2', 'head'} of the discriminator, and what taps need.
        generator: parameters, their moving average, and what else its steps need.
        reference: the average when the match loss's metric was last made.
        opt_states: of each of `Gan.updates`.
        latest: [A, F] last output of DPAGG for each aggregate.
        real, fake: [R, A, F] the head's memory, {} without a head: DPAGG's last R outputs for
            each aggregate and fake aggregates of then, in turn.
        pooled: [A, F] sum of DPAGG's outputs since conv2* last changed.
        num_pooled: [A] how many those are.
    """

    params: Params
    generator: TrainState
    reference: Params
    opt_states: dict[str, optax.OptState]
    head_opt_state: optax.OptState
    latest: jax.Array
    real: Any
    fake: Any
    pooled: jax.Array
    num_pooled: jax.Array


class StepKeys(NamedTuple):
    """Independent keys of one step: [8] uint32 for noise, [4] uint32 for public coins.

    Attributes:
        real_noise: of DPAGG; None where a step is post-processing, so that it cannot draw any.
        fake_noise: of fake aggregates.
        update_noise: by mechanism, one for each of `Gan.updates` where its turn is.
        public: of coins.
    """

    real_noise: parallel.HostOrDevice | None
    fake_noise: parallel.HostOrDevice
    update_noise: dict[str, parallel.HostOrDevice]
    public: parallel.HostOrDevice


class Use(enum.IntEnum):
    """What a step's public coins, and its noise of fake aggregates, are for."""

    HEAD = 0
    CONV1 = 1
    CONV2 = 2
    GENERATOR = 3
    ITS_AGGREGATES = 4  # where the generator learns by aggregates


def coins(keys: StepKeys, use: Use, inner: jax.Array | int = 0) -> jax.Array:
    """The public coins of a use, and of a step of it: no two share any."""
    return jax.random.fold_in(jax.random.fold_in(public_key(keys.public), use), inner)


@dataclasses.dataclass(frozen=True)
class Gan:
    """The static parts of phase 2; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan
    num_devices: int

    @property
    def updates(self) -> dict[str, tuple[str, ...]]:
        """What conv2_update.py trains: parts of D, as one vector, by their mechanism."""
        dpaf = self.config.dpaf
        if 'conv2' not in self.plan:
            return {}
        if dpaf.classifier.private == 'discriminator':
            return {'conv1': ('conv1',), 'conv2': ('conv2',)}
        return {'conv2': ('conv1', 'conv2') if dpaf.conv2.with_conv1 else ('conv2',)}

    @functools.cached_property
    def networks(self) -> Networks:
        """The modules."""
        return make_networks(self.config)

    @functools.cached_property
    def taps(self) -> TapLayout:
        """The columns of a row."""
        return make_tap_layout(self.config)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """Public numbers: what happens when, how many are expected."""
        return Schedule(self.config, self.plan, self.taps)

    @functools.cached_property
    def aggregator(self) -> Aggregator:
        """DPAGG."""
        return Aggregator(self.networks, self.schedule)

    @property
    def published(self) -> bool:
        """Whether to run Algorithm 1 as printed."""
        return self.config.privacy.as_published

    def init(self, key: jax.Array, learnt: Params | None) -> GanState:
        """Random parameters by public coins, but for what is learnt.

        Args:
            key: of the coins.
            learnt: by phase 1, if there was one: {'conv1'} or {'labeller'}, noised.
        """
        params = self._init_params(key, learnt or {})
        net, schedule = self.networks, self.schedule
        z, labels = jnp.zeros((1, net.z_dim)), jnp.zeros(1, jnp.int32)
        generator = net.generator.init(jax.random.split(key, 5)[3], z, labels)
        nothing = jnp.zeros((schedule.num_aggregates, self.taps.size))
        size = schedule.head_memory
        memory: Any = jnp.zeros((size, *nothing.shape)) if size else {}
        return GanState(
            params=params,
            generator=TrainState.start(generator, self.optimizer('generator')),
            reference=generator if schedule.whitenings else {},
            opt_states={
                name: self.optimizer(name).init({part: params[part] for part in parts})
                for name, parts in self.updates.items()
            },
            head_opt_state=self.optimizer('head').init(params['head']),
            latest=nothing,
            real=memory,
            fake=memory,
            pooled=nothing,
            num_pooled=jnp.zeros(schedule.num_aggregates),
        )

    def _init_params(self, key: jax.Array, learnt: Params) -> Params:
        """Of the discriminator, and of the taps that have some."""
        data, net, keys = self.config.data, self.networks, jax.random.split(key, 5)
        image = jnp.zeros((1, *data.shape))
        planes = jnp.zeros((1, data.num_classes))
        conv1 = learnt.get('conv1') or net.conv1.init(keys[0], image, planes)
        maps1 = net.conv1.apply(conv1, image, planes)
        conv2 = net.conv2.init(keys[1], maps1)
        beside = self.taps.beside_conv2(jnp.zeros((1, self.taps.size)))
        head = net.head.init(keys[2], net.conv2.apply(conv2, maps1), beside)
        own = init_taps(self.config, keys[4], learnt)
        return {'conv1': conv1, 'conv2': conv2, 'head': head, **own}

    def optimizer(self, part: str) -> optax.GradientTransformation:
        """The config's, for 'conv1', 'conv2', 'head' or 'generator'."""
        section = 'classifier' if part == 'conv1' else part
        config, schedule = getattr(self.config.dpaf, section), self.schedule
        cosine = part == 'generator' and config.schedule == 'cosine'
        steps = schedule.updates_per_part if cosine else 0
        bounded = part == 'generator' and schedule.whitenings > 0
        return make_optimizer(
            config.optimizer, config.learning_rate, steps, bounded=bounded
        )

    def privatised(
        self,
        state: GanState,
        sums: jax.Array | ExactSum,
        active: jax.Array,
        key_data: jax.Array,
    ) -> GanState:
        """DPAGG: the state with this step's noised aggregates (line 8).

        Args:
            state: whose features the sums are of.
            sums: [A, F], this device's `Aggregator.query`.
            active: [A] bool: aggregates of this step by the public schedule.
            key_data: of this step's noise alone.
        """
        noised = self.aggregator.privatise(sums, key_data)
        mine = active[:, None]
        latest = jnp.where(mine, noised, state.latest)
        state = state._replace(
            latest=latest,
            pooled=state.pooled + jnp.where(mine, noised, 0.0),
            num_pooled=state.num_pooled + active,
        )
        return state._replace(real=self.remembered(state, state.real, latest))

    def remembered(self, state: GanState, memory: Any, latest: jax.Array) -> Any:
        """The memory [R, A, F] with each aggregate's latest [A, F] in its place."""
        size = len(memory)
        if not size:
            return memory
        place = (state.num_pooled.astype(jnp.int32) - 1) % size
        here = jnp.arange(size)[:, None] == place
        return jnp.where(here[:, :, None], latest, memory)

    def targets(self, state: GanState) -> tuple[jax.Array, jax.Array]:
        """[A, F] mean row of each aggregate, and [A] whether it is known yet."""
        return targets.mean_rows(self.schedule, state.pooled, state.num_pooled)

    def noise_lengths(self, state: GanState) -> jax.Array:
        """[A] of the noise in each of the mean rows, in units of a row's bound."""
        return targets.noise_lengths(self.schedule, state.pooled, state.num_pooled)

    def fakes(
        self, generator: Params, key: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """This device's share of a batch of fakes: images, labels, is_padding."""
        sampler = LatentSampler(self.networks.generator, self.networks.z_dim)
        return share_of_fakes(sampler, generator, key, labels, self.num_devices)

    def random_labels(self, key: jax.Array, number: int) -> jax.Array:
        """[number] int32 drawn from the public prior."""
        return prior_labels(self.config.data.prior, key, number)

    def fake_aggregates(
        self,
        state: GanState,
        generator: Params,
        keys: StepKeys,
        use: Use,
        inner: jax.Array | int = 0,
    ) -> jax.Array:
        """[A, F]: aggregates of fresh fakes, by the law of real ones.

        Args:
            state: gives the features.
            generator: parameters that make the fakes.
            keys: of the step.
            use: what they are for; each use has its own coins.
            inner: step of that use.
        """
        key = coins(keys, use, inner)
        key_z, key_label, key_count = jax.random.split(key, 3)
        labels = jnp.asarray(self.aggregator.fake_labels())
        if not self.schedule.class_pure:
            labels = self.random_labels(key_label, len(labels))
        fakes = self.fakes(generator, key_z, labels)
        noise = chacha.derived(chacha.derived(keys.fake_noise, use), inner)
        return self.aggregator.of_fakes(state.params, fakes, key_count, noise)
