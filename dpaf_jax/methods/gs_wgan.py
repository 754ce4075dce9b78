"""GS-WGAN: critics on disjoint parts of the data, sanitised gradients (Chen et al. 2020).

A step is one critic's turn. It first learns from its own records, without noise; then the
gradient of its answers by a batch of generated images is clipped, image by image, and
noised, and the generator descends along it.

Critics persist, so a record that one critic has seen once shapes all of that critic's
later gradients, whether or not it is drawn again: no subsampling amplifies. What bounds
its influence is that it is behind one critic alone, whose turns come by a public
round-robin, T/n_D of them. In each the record may turn every one of the B clipped gradients
into any other: 2C for each image, 2C sqrt(B) for all. Which critic a record is behind is
decided by an independent coin of its index, so the others' places do not depend on it.

As published, critics are picked at random and the accountant charges T*B Gaussians
amplified by 1/n_D, of sensitivity C.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.config.methods import GsWganConfig
from dpaf_jax.methods.adversarial.networks import Adversaries, Metrics
from dpaf_jax.methods.adversarial.wgan import (
    Trio,
    distance,
    gradient_penalty,
    make_critic,
)
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.accounting import capacity_for
from dpaf_jax.privacy.budgets import make_plan
from dpaf_jax.privacy.clipping import clip_vector
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.privacy.keys import own_coins, public_key, record_keys
from dpaf_jax.privacy.noise import add_gaussian
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.privacy.summation import settled
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.release.samplers.registry import preview
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.fakes import prior_labels
from dpaf_jax.training.input_pipeline import Feed, gather
from dpaf_jax.training.optimizers import descend
from dpaf_jax.training.run import Run

GRADIENT = 'gradient'
CUT = 1e-9  # chance that some critic has more records than slots; what is cut is unused
PUBLISHED_REASON = (
    'critics persist between their turns, so picking them at random does not amplify, and '
    'one record moves all gradients of a batch'
)


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Returns:
        One mechanism, of the turns of one critic.

    Raises:
        UserError: the settings do not fit N, or the budget.
    """
    wgan = config.gs_wgan
    if wgan.batch_size > num_examples:
        raise UserError(
            'config.gs_wgan.batch_size',
            f'asks for {wgan.batch_size} images behind each critic of only {num_examples}',
            'Lower it',
        )
    critics = num_critics(wgan, num_examples)
    published = config.privacy.guarantee == 'as_published'
    images, clip = wgan.generator_batch_size, wgan.l2_clip_norm
    sensitivity = clip if published else 2 * clip * math.sqrt(images)
    mechanism = Mechanism(
        name=GRADIENT,
        kind='clipped gradients by generated images, of one critic in its turns',
        sampling_prob=1 / critics if published else 1.0,
        l2_sensitivity=math.inf if math.isinf(config.privacy.epsilon) else sensitivity,
        steps=wgan.generator_steps * images
        if published
        else -(-wgan.generator_steps // critics),
        expected_batch_size=float(images),
        capacity=num_examples,
    )
    only, privacy = (GRADIENT,), config.privacy
    return make_plan([mechanism], only, only, privacy, num_examples, PUBLISHED_REASON)


def num_critics(wgan: GsWganConfig, num_examples: int) -> int:
    """n_D: so many that each has `batch_size` records in expectation."""
    return max(1, num_examples // wgan.batch_size)


def train(run: Run) -> Any:
    """Trains critics and generator in turn; returns the average of the generator."""
    method = GsWgan(run.config, run.plan, len(run.devices))
    return run.train(GsWganPhase(run, method)).ema_params


class Critics(NamedTuple):
    """Private: never released, never noised; leaves have an axis [n_D].

    Attributes:
        params, optimizer: of each critic.
    """

    params: Any
    optimizer: Any


class GsWganState(NamedTuple):
    """What persists between turns.

    Attributes:
        critics: private; what else stands here is released or public.
        generator, ema_params: parameters and their moving average.
        generator_optimizer: Adam's.
        generator_steps: int32 scalar.
    """

    critics: Critics
    generator: Any
    ema_params: Any
    generator_optimizer: Any
    generator_steps: jax.Array


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
        """One critic's network, and the generator."""
        critic = make_critic(self.config, self.settings)
        sampler = latent_sampler(self.config)
        return Adversaries(
            self.config, self.settings, sampler, critic, self.num_devices
        )

    @property
    def critics(self) -> int:
        """n_D."""
        return num_critics(self.settings, self.plan.num_examples)

    def init(self, key: jax.Array) -> GsWganState:
        """Random parameters: public coins."""
        made = self.adversaries.init(key)

        def own(key: jax.Array) -> Critics:
            critic = self.adversaries.init(key)
            return Critics(critic.discriminator, critic.discriminator_optimizer)

        return GsWganState(
            critics=jax.lax.map(own, jax.random.split(key, self.critics)),
            generator=made.generator,
            ema_params=made.ema_params,
            generator_optimizer=made.generator_optimizer,
            generator_steps=made.generator_steps,
        )

    def trained_critic(
        self, critic: Critics, generator: Any, batch: ClipBatch, key: jax.Array
    ) -> Critics:
        """Plain steps of WGAN-GP on this critic's own records; private to it."""
        steps, blank = self.settings.discriminator_steps, batch.without_padding()
        labels, number = blank.labels[:, 0], len(blank.labels)
        own = jax.vmap(lambda key: jax.random.split(key, (2, steps)))(
            record_keys(key, batch.index[:, 0])
        )
        for_z, for_mix = own[:, 0].T.ravel(), own[:, 1].T.ravel()  # step by step
        # Drawn in front of the loop, in which a CPU's convolutions would be slow.
        fakes = self.adversaries.paired_fakes(generator, jnp.tile(labels, steps), for_z)
        mix = own_coins(jax.random.uniform, for_mix)
        real = to_float(blank.images[:, 0])
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
        return Critics(*descend(optimizer, gradient, critic.params, critic.optimizer))

    def query(
        self, critic: Any, fakes: jax.Array, labels: jax.Array
    ) -> jax.Array | ExactSum:
        """Clipped gradients [B, H, W, C] of -D by each image, before the noise.

        Sensitivity: 2 C sqrt(B), whatever a record did to the critic.
        """

        def loss(image: jax.Array, label: jax.Array) -> jax.Array:
            network = self.adversaries.discriminator
            return -network.apply(critic, image[None], label[None])[0]

        clip = self.settings.l2_clip_norm
        if math.isinf(self.mechanism.l2_sensitivity):
            clip = math.inf
        each = jax.vmap(jax.grad(loss))(fakes, labels)
        clipped = jax.vmap(lambda g: clip_vector(g, clip))(settled(each))
        grid = self.mechanism.grid
        return ExactSum.of(grid.units(clipped), grid.spacing) if grid else clipped

    def turn(
        self,
        state: GsWganState,
        batch: ClipBatch,
        noise_key: jax.Array,
        key: jax.Array,
        k: Any,
    ) -> tuple[GsWganState, jax.Array]:
        """One turn of critic `k`; also returns the noisy gradients, which are public.

        Args:
            state: before.
            batch: this device's share of the critic's records.
            noise_key: [8] uint32 of this turn alone.
            key: [4] uint32 of public coins.
            k: int32, whose turn it is; public.
        """
        key_critic, key_z, key_label = jax.random.split(public_key(key), 3)
        critic = jax.tree.map(lambda leaf: leaf[k], state.critics)
        own_key = jax.random.key_data(key_critic)
        critic = self.trained_critic(critic, state.generator, batch, own_key)
        number = self.settings.generator_batch_size
        labels = prior_labels(self.config.data.prior, key_label, number)
        z = jax.random.normal(key_z, (number, self.adversaries.sampler.z_dim))
        make = functools.partial(self._fakes, z, labels)
        # On every device the same: the batch is small, and the noise is added once.
        fakes, pull = jax.vjp(make, state.generator)
        query = self.query(critic.params, fakes, labels)
        noisy = add_gaussian(query, noise_key, self.mechanism.noise_std)
        (gradient,) = pull(noisy / number)
        critics = jax.tree.map(
            lambda every, own: every.at[k].set(own), state.critics, critic
        )
        state = state._replace(critics=critics)
        return self.adversaries.apply_generator_gradient(state, gradient), noisy

    def _fakes(self, z: jax.Array, labels: jax.Array, generator: Any) -> jax.Array:
        fakes: jax.Array = self.adversaries.sampler.generator.apply(
            generator, z, labels
        )
        return fakes


class GsWganPhase:
    """One turn a window."""

    name = 'gan'

    def __init__(self, run: Run, method: GsWgan):
        self._run, self._method = run, method
        self.total_steps = method.settings.generator_steps
        self.images_per_step = float(
            method.settings.batch_size * method.settings.discriminator_steps
        )
        self._turn_fn = parallel.pmapped(self._turn, run.devices, (0,))
        self._feed = Feed(run)

    def init(self) -> GsWganState:
        key = public_key(self._run.keys.public('init gan', 0))
        return jax.device_get(jax.jit(self._method.init)(key))

    def charged(self, step: int) -> Mapping[str, int]:
        if self._published:
            return {GRADIENT: step * self._method.settings.generator_batch_size}
        return {GRADIENT: -(-step // self._method.critics)}

    def picture(self, state: GsWganState) -> Image.Image:
        key = public_key(self._run.keys.public('picture', 0))
        return preview(self._run.config, state.ema_params, key)

    def window(self, state: Any, step: int) -> tuple[Any, int, Metrics]:
        run, k = self._run, self._whose(step)
        keys = run.keys.noise(GRADIENT, step), run.keys.public('step', step)
        rest = [run.on_every_device(x) for x in (*keys, np.array(k, np.int32))]
        dealt = self._feed.deal_one(self._records(k))
        state, metrics = self._turn_fn(state, self._feed.data, dealt, *rest)
        return state, step + 1, metrics

    @property
    def _published(self) -> bool:
        return self._run.config.privacy.guarantee == 'as_published'

    def _whose(self, step: int) -> int:
        """The critic whose turn it is: a round-robin; as published, any of them."""
        number = self._method.critics
        if self._published:
            return int(self._run.keys.rng('turn', step).integers(number))
        return step % number

    @functools.cached_property
    def _owner(self) -> np.ndarray:
        """[n] the critic of each record, by an independent coin of its index; private."""
        rng, data = self._run.keys.lasting('partition'), self._run.data
        size = data.manifest.num_examples
        return rng.integers(self._method.critics, size=size)[data.index]

    def _records(self, k: int) -> Draw:
        total = self._method.plan.num_examples
        slots = capacity_for(total, 1 / self._method.critics, CUT)
        own = np.flatnonzero(self._owner == k)[:slots]
        indices = np.zeros((slots, 1), np.int32)
        indices[: len(own), 0] = own
        return Draw(indices, np.arange(slots)[:, None] >= len(own))

    def _turn(
        self, state: Any, data: Any, draw: Any, *rest: Any
    ) -> tuple[Any, Metrics]:
        state, noisy = self._method.turn(state, gather(data, draw), *rest)
        return state, {'noisy_gradient_norm': optax.tree.norm(noisy)}
