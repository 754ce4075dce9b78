"""GS-WGAN: critics on disjoint parts of the data, sanitised gradients (Chen et al. 2020).

A step is the turn of one critic, or of several. Each first learns from its own records,
without noise; then the gradients of their answers by a batch of generated images are
clipped, critic by critic and image by image, added up and noised, and the generator
descends along the sum.

Critics are private, and persist. One record is behind one critic, whatever it does to it;
plan.py has what follows.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.config.methods import GsWganConfig
from dpaf_jax.methods.adversarial.networks import Adversaries
from dpaf_jax.methods.adversarial.wgan import (
    Trio,
    distance,
    gradient_penalty,
    make_critic,
)
from dpaf_jax.methods.gs_wgan.plan import GRADIENT, num_critics
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.clipping import clip_vector
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import own_coins, public_key, record_keys
from dpaf_jax.privacy.noise import add_gaussian
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.summation import settled
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.release.samplers.smooth import at_cells
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch, prior_labels
from dpaf_jax.training.optimizers import TrainState, descend, make_optimizer


class Critics(NamedTuple):
    """Private: never released, never noised; leaves have an axis [n_D].

    Attributes:
        params, opt_state: of each critic and its optimiser.
    """

    params: Any
    opt_state: Any


class GsWganState(NamedTuple):
    """What persists between turns.

    Attributes:
        critics: private; what else stands here is released or public.
        generator: parameters, their moving average, and what else its steps need.
    """

    critics: Critics
    generator: TrainState


class FallingRate(Adversaries):
    """A generator whose gradients are mostly noise: its steps get shorter."""

    def optimizer(self, part: str) -> optax.GradientTransformation:
        """As of the others; the generator's rate falls to 2 % along a cosine."""
        if part == 'discriminator':
            return super().optimizer(part)
        settings = self.settings
        rate, steps = settings.generator_learning_rate, settings.generator_steps
        return make_optimizer('adam', rate, steps)


@dataclasses.dataclass(frozen=True)
class GsWgan:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan
    num_devices: int

    @property
    def settings(self) -> GsWganConfig:
        """The method's fields."""
        return self.config.gs_wgan

    @property
    def mechanism(self) -> Mechanism:
        """The sanitised gradient."""
        return self.plan[GRADIENT]

    @property
    def adversaries(self) -> Adversaries:
        """One critic's network, and the generator; both of images of a pixel a cell."""
        small = at_cells(self.config, self.settings.cell)
        critic = make_critic(small, self.settings).clone(begins_at_zero=True)
        sampler = latent_sampler(small)
        return FallingRate(small, self.settings, sampler, critic, self.num_devices)

    @property
    def critics(self) -> int:
        """n_D."""
        return num_critics(self.settings, self.plan.num_examples)

    def init(self, key: jax.Array) -> GsWganState:
        """Random parameters: public coins."""
        made = self.adversaries.init(key)

        def own(key: jax.Array) -> Critics:
            critic = self.adversaries.init(key)
            return Critics(critic.discriminator, critic.discriminator_opt_state)

        return GsWganState(
            critics=jax.lax.map(own, jax.random.split(key, self.critics)),
            generator=made.generator,
        )

    def seen(self, images: jax.Array) -> jax.Array:
        """[U, H, W, C] records, each by itself, as critics see them: [U, h, w, C]."""
        small = at_cells(self.config, self.settings.cell).data.shape
        return jax.image.resize(to_float(images), (len(images), *small), 'linear')

    def trained_critic(
        self, critic: Critics, generator: Any, batch: ClipBatch, key: jax.Array
    ) -> Critics:
        """Plain steps of WGAN-GP on this critic's own records; private to it."""
        steps, blank = self.settings.discriminator_steps, batch.without_padding()
        labels, number = blank.labels[:, 0], len(blank.labels)
        own = jax.vmap(lambda key: jax.random.split(key, (2, steps)))(
            record_keys(key, blank.index[:, 0])
        )
        for_z, for_mix = own[:, 0].T.ravel(), own[:, 1].T.ravel()  # step by step
        # Drawn in front of the loop, in which a CPU's convolutions would be slow.
        fakes = self.adversaries.paired_fakes(generator, jnp.tile(labels, steps), for_z)
        mix = own_coins(jax.random.uniform, for_mix)
        real = self.seen(blank.images[:, 0])
        present = ~batch.is_padding_example[:, 0]

        def step(critic: Critics, xs: tuple[jax.Array, jax.Array]) -> Any:
            trios = Trio(real=real, fake=xs[0], label=labels, mix=xs[1])
            return self._critic_step(critic, trios, present), None

        apart = fakes.reshape(steps, number, *fakes.shape[1:])
        return jax.lax.scan(step, critic, (apart, mix.reshape(steps, number)))[0]

    def _critic_step(self, critic: Critics, trios: Trio, present: jax.Array) -> Critics:
        network, weight = self.adversaries.discriminator, self.settings.penalty_weight

        def cost(params: Any) -> jax.Array:
            def each(trio: Trio) -> jax.Array:
                steep = gradient_penalty(network, params, trio)
                return distance(network, params, trio) + weight * steep

            return jnp.sum(jnp.where(present, jax.vmap(each)(trios), 0.0))

        gradient = parallel.total(jax.grad(cost)(critic.params))
        gradient = jax.tree.map(lambda g: g / self.settings.batch_size, gradient)
        optimizer = self.adversaries.optimizer('discriminator')
        return Critics(*descend(optimizer, gradient, critic.params, critic.opt_state))

    def query(
        self, critics: Any, fakes: jax.Array, labels: jax.Array
    ) -> jax.Array | ExactSum:
        """Sums over critics of clipped gradients of -D by each image, before the noise.

        Sensitivity: 2 C sqrt(B), whatever a record did to its critic.

        Args:
            critics: parameters, with an axis [M].
            fakes: [B, h, w, C].
            labels: [B] int32.

        Returns:
            [B, h, w, C].
        """

        def loss(critic: Any, image: jax.Array, label: jax.Array) -> jax.Array:
            network = self.adversaries.discriminator
            return -network.apply(critic, image[None], label[None])[0]

        clip = self.mechanism.bound(self.settings.l2_clip_norm)
        by_image = jax.vmap(jax.grad(loss, 1), (None, 0, 0))
        each = jax.vmap(by_image, (0, None, None))(critics, fakes, labels)
        clipped = jax.vmap(jax.vmap(lambda g: clip_vector(g, clip)))(settled(each))
        grid = self.mechanism.grid
        return grid.sum(clipped) if grid else jnp.sum(clipped, axis=0)

    def turn(
        self,
        state: GsWganState,
        batches: ClipBatch,
        noise_key: jax.Array,
        key: jax.Array,
        turn: Any,
    ) -> tuple[GsWganState, jax.Array]:
        """One turn of M critics; also returns the noisy gradients, which are public.

        Args:
            state: before.
            batches: this device's share of each critic's records, with an axis [M].
            noise_key: [8] uint32 of this turn alone.
            key: [4] uint32 of public coins.
            turn: [M] int32, whose turn it is, no critic twice; public.
        """
        key_critic, key_z, key_label = jax.random.split(public_key(key), 3)
        critics = jax.tree.map(lambda leaf: leaf[turn], state.critics)
        own_key = jax.random.key_data(key_critic)
        learn = jax.vmap(self.trained_critic, (0, None, 0, None))
        critics = learn(critics, state.generator.params, batches, own_key)
        number = self.settings.generator_batch_size
        labels = prior_labels(self.config.data.prior, key_label, number)
        z = jax.random.normal(key_z, (number, self.adversaries.sampler.z_dim))

        def make(generator: Any) -> Any:
            return self.adversaries.sampler.generator.apply(generator, z, labels)

        # On every device the same: the batch is small, and the noise is added once.
        fakes, pull = jax.vjp(make, state.generator.params)
        query = self.query(critics.params, fakes, labels)
        noisy = add_gaussian(query, noise_key, self.mechanism.noise_std)
        (gradient,) = pull(noisy / (number * len(turn)))
        every = jax.tree.map(
            lambda every, own: every.at[turn].set(own), state.critics, critics
        )
        generator = self.adversaries.descended(state.generator, gradient)
        return GsWganState(every, generator), noisy
