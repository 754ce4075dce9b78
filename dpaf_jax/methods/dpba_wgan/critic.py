"""DPBA-WGAN: WGAN-GP with bilateral alternative noise of varying scale (Wu et al. 2023).

Certified. The cost of one record is the distance D(fake) - D(real) to a fake of its own
label, and the penalty on the interpolate of the two. Its gradient is one vector, clipped
and summed with those of the others, and the noise is added to the sum. Bilateral alternation:
a public coin of the record's own picks which of the two terms its gradient is of, with twice
the weight. Dynamic noise: sigma_t is one of a few values between the least and `noise_ratio`
times it, drawn with public coins when the plan is made, and charged as drawn: a mechanism
for each value.

With `per_label` each label has a critic and a generator of its own, which take turns by a
public round-robin and see that class alone: what is charged are the turns of one class.

What the paper prints, which certifies nothing, is published.py.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.config import Config
from dpaf_jax.config.methods import DpbaWganConfig
from dpaf_jax.methods.adversarial.networks import (
    AdversarialState,
    Adversaries,
    AdversariesPerLabel,
)
from dpaf_jax.methods.adversarial.wgan import (
    Trio,
    distance,
    gradient_penalty,
    make_critic,
)
from dpaf_jax.methods.dpba_wgan.schedule import Schedule
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.grid import Grid, add
from dpaf_jax.privacy.keys import RunKeys, own_coins, record_keys
from dpaf_jax.privacy.noise import noisy_total
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.sampling import Draw, poisson_draw
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.phase import Metrics

# Chunks that are expected to hold records, where a class could be all of N. More are less
# even in length, fewer compute more slots that are empty.
DEPTH = 8


class WeightedTrio(NamedTuple):
    """A record's trio, and what its two terms count.

    Attributes:
        trio: images and label.
        distance, penalty: float32 scalars.
    """

    trio: Trio
    distance: jax.Array
    penalty: jax.Array


@dataclasses.dataclass(frozen=True)
class DpbaWgan:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan
    num_devices: int

    @property
    def settings(self) -> DpbaWganConfig:
        """The method's fields."""
        return self.config.dpba_wgan

    @property
    def adversaries(self) -> Adversaries:
        """Critic and generator."""
        critic = make_critic(self.config, self.settings)
        kind = AdversariesPerLabel if self.settings.per_label else Adversaries
        sampler = latent_sampler(self.config)
        return kind(self.config, self.settings, sampler, critic, self.num_devices)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """Whose turn each step is, and with which noise."""
        return Schedule(self.config, self.plan)

    @property
    def grid(self) -> Grid | None:
        """One grid for all steps: the coarsest, which the largest noise fits."""
        grids = [m.grid for m in self.schedule.mechanisms]
        return max((g for g in grids if g), key=lambda g: g.spacing, default=None)

    def mechanism_at(self, step: int) -> Mechanism:
        """See `adversarial.phase.Method`."""
        return self.schedule.mechanism_at(step)

    def charged(self, step: int) -> Mapping[str, int]:
        """See `training.phase.Phase`: of the first model, which none is ahead of."""
        return self.schedule.charged(step)

    def eligible(self, labels: np.ndarray, step: int) -> np.ndarray:
        """See `adversarial.phase.Method`: one class where it has a model of its own."""
        if not self.settings.per_label:
            return np.arange(len(labels))
        return np.flatnonzero(labels == self.schedule.label(step))

    def draw(self, keys: RunKeys, eligible: np.ndarray, step: int) -> Draw:
        """A Poisson sample."""
        return poisson_draw(self.mechanism_at(step), eligible, keys, step)

    def trios(self, state: AdversarialState, batch: ClipBatch, key: jax.Array) -> Trio:
        """This device's [U] records with fakes and interpolates from their own coins."""
        batch = batch.without_padding()
        labels = batch.labels[:, 0]
        for_z, for_mix, _ = three_keys(key, batch)
        return Trio(
            real=to_float(batch.images[:, 0]),
            fake=self.adversaries.paired_fakes(state.generator.params, labels, for_z),
            label=labels,
            mix=own_coins(jax.random.uniform, for_mix),
        )

    def weights(self, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        """[U] weights of the distances and of the penalties, from each record's key."""
        penalty = jnp.full(len(keys), self.settings.penalty_weight)
        if not self.settings.alternate:
            return jnp.ones(len(keys)), penalty
        heads = own_coins(toss, keys)
        return jnp.where(heads, 2.0, 0.0), jnp.where(heads, 0.0, 2 * penalty)

    def cost(self, params: Any, unit: WeightedTrio) -> jax.Array:
        """A record's cost: the weighted sum of its two terms."""
        critic = self.adversaries.discriminator
        return unit.distance * distance(
            critic, params, unit.trio
        ) + unit.penalty * gradient_penalty(critic, params, unit.trio)

    def query(self, state: AdversarialState, batch: ClipBatch, key: jax.Array) -> Any:
        """This device's pre-noise sum of clipped gradients.

        Sensitivity of the sum over devices: `l2_clip_norm`. A unit's gradient depends on
        its record, on public coins that the record's index and the step decide, and on
        parameters that noisy outputs have made.

        Args:
            state: gives both networks, of the label whose turn it is.
            batch: singletons.
            key: [4] uint32 of the step's public coins, equal on all devices.
        """
        if self.settings.per_label:
            return self._query_by_chunks(state, batch, key)
        return self._query(state, batch, key)

    def _query_by_chunks(
        self, state: AdversarialState, batch: ClipBatch, key: jax.Array
    ) -> Any:
        """`_query` where few slots are taken: all records could be of the label in turn.

        Chunks of one public length are added up until the rest is empty. One program
        computes every chunk and knows not how many there are. A record's slot in its chunk
        is decided by its slot in the draw alone, whoever else is there (`stacked`).
        """
        drawn = ~batch.is_padding_example[:, 0]
        expected = self.schedule.mechanisms[0].expected_batch_size / self.num_devices
        where, heights = stacked(drawn, math.ceil(expected / DEPTH))

        def chunk(i: jax.Array) -> Any:
            part = jax.tree.map(lambda leaf: leaf[where[i]], batch)
            part = part._replace(is_padding_example=(i >= heights)[:, None])
            return self._query(state, part, key)

        def more(i: jax.Array, sums: Any) -> Any:
            return add(sums, chunk(i))  # carries, so there may be any number of chunks

        shapes = jax.eval_shape(chunk, jnp.int32(0))
        nothing = jax.tree.map(jnp.zeros_like, shapes)
        return jax.lax.fori_loop(0, jnp.max(heights), more, nothing)

    def _query(self, state: AdversarialState, batch: ClipBatch, key: jax.Array) -> Any:
        trios, (_, _, for_term) = self.trios(state, batch, key), three_keys(key, batch)
        return clipped_gradient_sum(
            self.cost,
            state.discriminator,
            WeightedTrio(trios, *self.weights(for_term)),
            batch.is_padding_example[:, 0],
            l2_clip_norm=self.schedule.mechanisms[0].l2_clip_norm,
            grid=self.grid,
        )

    def discriminator_step(
        self,
        state: AdversarialState,
        batch: ClipBatch,
        noise_key: jax.Array,
        key: jax.Array,
        noise_std: jax.Array,
    ) -> tuple[AdversarialState, Metrics]:
        """One update of the critic whose turn it is; the divisor is public.

        Args:
            state: before.
            batch: this device's share of a draw.
            noise_key: [8] uint32 of this step alone.
            key: [4] uint32 of public coins.
            noise_std: of this step's mechanism.
        """

        def step(own: AdversarialState, _: Any) -> tuple[AdversarialState, Metrics]:
            noisy = self.noisy_sum(own, batch, noise_key, key, noise_std)
            size = self.schedule.mechanisms[0].expected_batch_size
            gradient = jax.tree.map(lambda g: g / size, noisy)
            return self.adversaries.update_discriminator(own, gradient)

        return self.adversaries.in_turn(state, step)

    def noisy_sum(
        self,
        state: AdversarialState,
        batch: ClipBatch,
        noise_key: jax.Array,
        key: jax.Array,
        noise_std: jax.Array,
    ) -> Any:
        """The noisy sum of gradients, all that is seen of the records."""
        return noisy_total(self.query(state, batch, key), noise_key, noise_std)

    def generator_step(
        self, state: AdversarialState, key_data: jax.Array
    ) -> tuple[AdversarialState, Metrics]:
        """One update by -D on fakes of the model whose turn it is: post-processing."""

        def step(own: AdversarialState, label: Any) -> tuple[AdversarialState, Metrics]:
            return self.adversaries.update_generator(own, key_data, _told, label)

        return self.adversaries.in_turn(state, step)


def _told(answers: jax.Array) -> Mapping[str, jax.Array]:
    return {'loss_generator': -answers}


def three_keys(key_data: jax.Array, batch: ClipBatch) -> list[jax.Array]:
    """Three keys [U] for each record, of its own."""
    keys = record_keys(key_data, batch.index[:, 0])
    return list(jax.vmap(lambda key: jax.random.split(key, 3))(keys).T)


def stacked(drawn: jax.Array, length: int) -> tuple[jax.Array, jax.Array]:
    """Taken slots of a draw in columns, each pushed to its front.

    Slot s is of column s modulo `length`, so no record moves another to another column.

    Args:
        drawn: [U] bool, the slots that are taken.
        length: columns, which is the length of a chunk.

    Returns:
        [chunks, length] int32, the slot of the draw that each slot of a chunk shows; and
        [length] int32, how many slots of each column are taken: these come first.
    """
    rows = -(-len(drawn) // length)
    filled = jnp.pad(drawn, (0, rows * length - len(drawn))).reshape(rows, length)
    order = jnp.argsort(~filled, axis=0, stable=True)
    where = jnp.minimum(order * length + jnp.arange(length), len(drawn) - 1)
    return where, jnp.sum(filled, axis=0)


def toss(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """A fair coin: bool of this shape."""
    return jax.random.bernoulli(key, shape=shape)
