"""Phase 2 of DPAF: DPAGG in the forward pass, and the head that reads its output.

A private image enters phase 2 in two places, each with a Poisson sample of its own:
here, where its bounded row is summed into one aggregate and noised (`query`, `release`),
and in conv2_update.py. All that trains conv3*, FC* (`head_step`, Algorithm 1, lines 8
and 11-14) and the generator (generator_update.py) reads the noisy aggregates.

Fakes pass without noise wherever no real image is summed with them; fake aggregates
get the noise law of the real ones, from another key.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.shrinkage import shrunk
from dpaf_jax.methods.dpaf.taps import RowLayout, features, init_fourier, init_labeller
from dpaf_jax.networks.contrast import init_contrast
from dpaf_jax.networks.discriminator import Networks, to_float
from dpaf_jax.privacy import chacha
from dpaf_jax.privacy.aggregation import aggregate, dpagg
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.latent import LABELLER, LatentSampler, init_weights
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import Units
from dpaf_jax.training.fakes import prior_labels, share_of_fakes
from dpaf_jax.training.optimizers import make_optimizer

Params = dict[str, Any]
Use = jax.Array | int
Metrics = dict[str, jax.Array]


class GanState(NamedTuple):
    """Everything that persists between steps; all of it is released or public.

    Attributes:
        params: {'conv1', 'conv2', 'head'} of the discriminator, and what taps need.
        generator, average: the generator's parameters and their moving average.
        reference: the average when the match loss's metric was last made.
        latest: [A, F] last output of DPAGG for each aggregate.
        pooled: [A, F] sum of DPAGG's outputs since conv2* last changed.
        releases: [A] how many those are.
        generator_steps: int32 scalar.
    """

    params: Params
    generator: Params
    average: Params
    reference: Params
    conv2_optimizer: optax.OptState
    head_optimizer: optax.OptState
    generator_optimizer: optax.OptState
    latest: jax.Array
    pooled: jax.Array
    releases: jax.Array
    generator_steps: jax.Array


class StepKeys(NamedTuple):
    """Independent keys of one step: [8] uint32 for noise, [4] for public coins."""

    real_noise: parallel.HostOrDevice
    fake_noise: parallel.HostOrDevice
    conv2_noise: parallel.HostOrDevice
    public: parallel.HostOrDevice


@dataclasses.dataclass(frozen=True)
class Gan:
    """The static part of phase 2; its methods are pure functions of arrays."""

    networks: Networks
    rows: RowLayout
    config: Config
    plan: PrivacyPlan
    num_devices: int

    @property
    def dpagg(self) -> Mechanism:
        """The forward mechanism."""
        return self.plan['dpagg']

    @property
    def class_pure(self) -> bool:
        """Whether every class has its own aggregate."""
        return self.config.dpaf.batches == 'class_pure'

    @property
    def published(self) -> bool:
        """Whether to run Algorithm 1 as printed."""
        return self.config.privacy.guarantee == 'as_published'

    @property
    def trains_head(self) -> bool:
        """Whether anything needs the discriminator's head."""
        return self.config.dpaf.generator.adversarial or 'conv2' in self.plan

    @property
    def num_aggregates(self) -> int:
        """Rows of DPAGG's table."""
        return self.networks.num_classes if self.class_pure else 1

    @property
    def turns(self) -> int:
        """DPAGG steps until every class has had one."""
        at_once = self.config.dpaf.classes_per_step or self.num_aggregates
        return self.num_aggregates // at_once if self.class_pure else 1

    @property
    def releases(self) -> int:
        """DPAGG steps of the whole run."""
        return self.dpagg.steps * self.turns

    @property
    def whitenings(self) -> int:
        """How often `loss_match` is whitened: never where the noise is too long for it."""
        generator = self.config.dpaf.generator
        limit = generator.whiten_below or math.inf
        return generator.whitenings if self.noise_length <= limit else 0

    @property
    def updates_per_part(self) -> int:
        """Generator steps with one metric, which have an optimiser of their own."""
        dpaf = self.config.dpaf
        updates = self.releases // dpaf.n_critic * dpaf.generator_steps
        return -(-updates // (self.whitenings + 1))

    @property
    def expected_counts(self) -> np.ndarray:
        """[A, 1] float32 public expected number of records in each aggregate."""
        m, n = self.dpagg, self.plan.num_examples
        shares = self.config.data.prior if self.class_pure else (1.0,)
        return np.array([[m.sampling_prob * n * s] for s in shares], np.float32)

    @property
    def noise_length(self) -> float:
        """Of a released mean row, in units of its bound; the mean over aggregates. Public."""
        each = self.dpagg.noise_std / self.expected_counts / self.rows.bound
        return math.sqrt(self.rows.size) * float(np.mean(each))

    @property
    def num_fakes(self) -> np.ndarray:
        """[A] fakes for each aggregate: in small batches as many as reals are expected."""
        if self.config.dpaf.batch_size:
            return np.maximum(1, self.expected_counts[:, 0].round()).astype(int)
        number = self.config.dpaf.generator.batch_size // self.num_aggregates
        return np.full(self.num_aggregates, max(1, number))

    def init(self, key: jax.Array, learnt: Params | None) -> GanState:
        """Random parameters by public coins, but for what is learnt.

        Args:
            key: of the coins.
            learnt: by phase 1, if there was one: {'conv1'} or {'labeller'}, noised.
        """
        data, net, learnt = self.config.data, self.networks, learnt or {}
        keys = jax.random.split(key, 7)
        image = jnp.zeros((1, data.image_size, data.image_size, data.channels))
        planes = jnp.zeros((1, data.num_classes))
        conv1 = learnt.get('conv1') or net.conv1.init(keys[0], image, planes)
        maps1 = net.conv1.apply(conv1, image, planes)
        conv2 = net.conv2.init(keys[1], maps1)
        head = net.head.init(keys[2], net.conv2.apply(conv2, maps1))
        labels = jnp.zeros(1, jnp.int32)
        generator = net.generator.init(keys[3], jnp.zeros((1, net.z_dim)), labels)
        params = {'conv1': conv1, 'conv2': conv2, 'head': head}
        if 'fourier' in self.rows:
            params['fourier'] = init_fourier(keys[4], image)
        if 'contrast' in self.rows:
            params['contrast'] = init_contrast(keys[6], data.channels)
        if LABELLER in self.rows:
            known = learnt.get(LABELLER) or init_weights(self.config)
            params[LABELLER] = init_labeller(keys[5], known['weights'])
        table = jnp.zeros((self.num_aggregates, self.rows.size))
        return GanState(
            params=params,
            generator=generator,
            average=generator,
            reference=generator if self.whitenings else {},
            conv2_optimizer=self.optimizer('conv2').init(conv2),
            head_optimizer=self.optimizer('head').init(head),
            generator_optimizer=self.optimizer('generator').init(generator),
            latest=table,
            pooled=table,
            releases=jnp.zeros(self.num_aggregates),
            generator_steps=jnp.int32(0),
        )

    def optimizer(self, part: str) -> optax.GradientTransformation:
        """The config's, for 'conv2', 'head' or 'generator'."""
        config = getattr(self.config.dpaf, part)
        cosine = part == 'generator' and config.schedule == 'cosine'
        steps = self.updates_per_part if cosine else 0
        bounded = part == 'generator' and self.whitenings > 0
        return make_optimizer(
            config.optimizer, config.learning_rate, steps, bounded=bounded
        )

    # --- DPAGG on real images ---------------------------------------------------

    def image_rows(
        self, params: Params, images: jax.Array, labels: jax.Array
    ) -> jax.Array:
        """[B, F] rows of float images, not yet bounded."""
        return self.rows.join(features(self.networks, params, images, labels))

    def table_index(self, labels: jax.Array) -> jax.Array:
        """[B] int32: the aggregate that each label's rows go to."""
        return labels if self.class_pure else jnp.zeros_like(labels)

    def query(self, params: Params, units: Units) -> jax.Array | ExactSum:
        """This device's pre-noise table [A, F] of its share of a draw.

        Sensitivity of the sum over devices: `rows.bound`, since a record's row is
        clipped to it and enters one row of the table.
        """
        one_draw = jnp.zeros(len(units.labels), jnp.int32)
        tables = self.queries(params, units, one_draw, 1)
        return jax.tree.map(lambda leaf: leaf[0], tables)

    def queries(
        self, params: Params, units: Units, draw: jax.Array, number: int
    ) -> jax.Array | ExactSum:
        """As `query`, of several draws at once, while the features stay the same.

        Args:
            params: of the features.
            units: this device's share of all draws.
            draw: [U] int32 in [0, number): the one that each unit is of. A record that
                several have drawn is there several times.
            number: of draws.

        Returns:
            [number, A, F]: a table for each, to which other draws' records add nothing.
        """
        units = units.without_padding()
        labels, rows = units.labels[:, 0], self.num_aggregates
        summed = aggregate(
            self.image_rows(params, to_float(units.images[:, 0]), labels),
            draw * rows + self.table_index(labels),
            units.is_padding_example[:, 0],
            number * rows,
            self.dpagg.l2_sensitivity,
            self.dpagg.grid,
        )
        return jax.tree.map(lambda leaf: leaf.reshape(number, rows, -1), summed)

    def release(
        self,
        state: GanState,
        sums: jax.Array | ExactSum,
        turn: jax.Array,
        key_data: jax.Array,
    ) -> GanState:
        """DPAGG: from a query's sums to the aggregates that everything else reads.

        Args:
            sums: [A, F], this device's `query`.
            turn: [A] bool: aggregates whose turn it is by the public schedule.
            key_data: [8] uint32.
        """
        expected = jnp.asarray(self.expected_counts)
        noisy = dpagg(sums, key_data, self.dpagg.noise_std, expected)
        mine = turn[:, None]
        return state._replace(
            latest=jnp.where(mine, noisy, state.latest),
            pooled=state.pooled + jnp.where(mine, noisy, 0.0),
            releases=state.releases + turn,
        )

    def targets(self, state: GanState) -> tuple[jax.Array, jax.Array]:
        """[A, F] mean row per aggregate as far as released, and [A] whether it is."""
        known = state.releases > 0
        releases = jnp.maximum(state.releases, 1)[:, None]
        table = state.pooled / releases
        if 'count' in self.rows:
            # The noisy count came with the same vector; reals are at least one.
            count = self.rows.part(table, 'count')
            variance = jnp.square(self._count_noise) / releases
            count = shrunk(count, 1.0, variance, known[:, None])
            table = table / jnp.maximum(count, 1 / self.expected_counts)
        return table, known

    @property
    def _count_noise(self) -> np.ndarray:
        """[A, 1] standard deviation of a released count's, as a share of the expected one.

        A row's share for its count is the best for all columns together. That leaves a few
        records' count off by a third, and with it the length of their mean: so much that
        images alike, or none at all, come nearest to it.
        """
        (block,) = (b for b in self.rows.blocks if b.name == 'count')
        each: np.ndarray = self.dpagg.noise_std / self.expected_counts
        return each / self.rows.scale(block)

    # --- fakes ------------------------------------------------------------------

    def fakes(
        self, generator: Params, key: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """This device's share of a batch of fakes: images, labels, is_padding."""
        net = self.networks
        sampler = LatentSampler(net.generator, net.z_dim)
        return share_of_fakes(sampler, generator, key, labels, self.num_devices)

    def random_labels(self, key: jax.Array, number: int) -> jax.Array:
        """[number] int32 drawn from the public prior."""
        return prior_labels(self.config.data.prior, key, number)

    def fake_aggregate(
        self, state: GanState, generator: Params, keys: StepKeys, use: Use = 0
    ) -> jax.Array:
        """[A, F]: fakes through the same features, counts and noise law as reals.

        The mean row of `num_fakes`, times a count with the law of a real draw's: mean and
        spread are those of a sum over so many, and no fake is made that no one counts.

        Args:
            state: gives the features.
            generator: parameters that make the fakes.
            keys: of the step.
            use: number of this use of the step's keys; each has its own coins.
        """
        key = jax.random.fold_in(public_key(keys.public), use)
        key_z, key_label, key_count = jax.random.split(key, 3)
        number = self.num_fakes
        labels = jnp.asarray(np.repeat(np.arange(self.num_aggregates), number))
        if not self.class_pure:
            labels = self.random_labels(key_label, len(labels))
        images, labels, is_padding = self.fakes(generator, key_z, labels)
        sums: Any = aggregate(
            self.image_rows(state.params, images, labels),
            self.table_index(labels),
            is_padding,
            self.num_aggregates,
            self.dpagg.l2_sensitivity,
        )
        prob, expected = self.dpagg.sampling_prob, jnp.asarray(self.expected_counts)
        counts = jax.random.binomial(key_count, (expected / prob).round(), prob)
        sums = sums * (counts / number[:, None])
        key_noise = chacha.derived(keys.fake_noise, use)
        return dpagg(sums, key_noise, self.dpagg.noise_std, expected)

    # --- discriminator ----------------------------------------------------------

    def logits(self, head: Params, table: jax.Array) -> jax.Array:
        """[A, 1] answers of the head to aggregates [A, F]."""
        return self.networks.head.apply(head, self.rows.part(table, 'conv2'))

    def head_step(
        self, state: GanState, turn: jax.Array, keys: StepKeys
    ) -> tuple[GanState, Metrics]:
        """L_BCE: conv3* and FC* learn from released and fake aggregates."""
        fake = self.fake_aggregate(state, state.generator, keys)
        weight = turn / jnp.sum(turn)

        def loss(head: Params) -> jax.Array:
            real = optax.sigmoid_binary_cross_entropy(
                self.logits(head, state.latest)[:, 0], jnp.ones_like(weight)
            )
            made = optax.sigmoid_binary_cross_entropy(
                self.logits(head, fake)[:, 0], jnp.zeros_like(weight)
            )
            return jnp.vdot(weight, real + made)

        value, gradient = jax.value_and_grad(loss)(state.params['head'])
        updates, optimizer = self.optimizer('head').update(
            gradient, state.head_optimizer, state.params['head']
        )
        head = optax.apply_updates(state.params['head'], updates)
        state = state._replace(
            params={**state.params, 'head': head}, head_optimizer=optimizer
        )
        return state, {'loss_head': value}
