"""DP-Kernel as its authors run it: a noisy loss at every step, and a gradient without noise.

A step draws records, makes fakes, and computes the squared MMD of the two under the
product of a mean of Gaussian kernels and the label kernel. The paper adds a Gaussian process
to the records' mean embedding f and lets the generator descend: for the function f + g that
holds. The released code evaluates g at the images of the batch and adds the values as
constants. Only their sum under fixed weights enters the loss, so all the noise of a step is
one normal number xi, and what the generator descends along is

    gradient of (mmd^2 + xi)^2 = 2 (mmd^2 + xi) gradient of mmd^2:

the direction is that of private records, exactly. Nothing is certified
(docs/explanation/dp_kernel.md).
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.config.methods import DpKernelConfig
from dpaf_jax.networks.images import reduced, to_float
from dpaf_jax.privacy.accounting import capacity_for
from dpaf_jax.privacy.budgets import check_batch_size, plan_of_one
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.noise import add_gaussian
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.training.batch import ClipBatch, prior_labels
from dpaf_jax.training.optimizers import TrainState, averaged_step, make_optimizer

LOSS = 'loss'
CUT = 1e-9  # chance that a draw has more records than slots
REASON = (
    'the noise on the loss has no gradient, so the generator descends along that of the '
    'private records'
)


def published_plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The noise that the paper asks for at a claimed epsilon; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit N, or no noise meets the claim.
    """
    size = config.dp_kernel.batch_size
    check_batch_size('config.dp_kernel.batch_size', size, num_examples)
    rate = size / num_examples
    loss = Mechanism(
        name=LOSS,
        kind='squared MMD of a batch, plus a number',
        sampling_prob=rate,
        # The mean of kernels is 1 at equal images: |k(x) - k(y)| <= sqrt(2).
        l2_sensitivity=math.sqrt(2) / size,
        steps=config.dp_kernel.generator_steps,
        expected_batch_size=float(size),
        capacity=capacity_for(num_examples, rate, CUT),
    )
    return plan_of_one(loss, config.privacy, num_examples, REASON)


@dataclasses.dataclass(frozen=True)
class PublishedKernel:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan

    @property
    def settings(self) -> DpKernelConfig:
        """The method's fields."""
        return self.config.dp_kernel

    @property
    def mechanism(self) -> Mechanism:
        """The noise on the loss."""
        return self.plan[LOSS]

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        rate, steps = self.settings.learning_rate, self.settings.generator_steps
        return make_optimizer('adam', rate, steps)

    def init(self, key: jax.Array) -> TrainState:
        """Random parameters."""
        made = latent_sampler(self.config).init(key)
        return TrainState.start(made, self._optimizer)

    def kernel(
        self, images: jax.Array, labels: jax.Array, others: jax.Array, whose: jax.Array
    ) -> jax.Array:
        """[n, m] mean of Gaussian kernels of flat images, 0 between two labels."""
        lengths = [jnp.sum(jnp.square(x), axis=1) for x in (images, others)]
        products = jnp.matmul(images, others.T, precision='highest')
        squares = jnp.maximum(lengths[0][:, None] + lengths[1] - 2 * products, 0.0)
        scales = jnp.array(self.settings.length_scales) * math.sqrt(images.shape[1])
        each = jnp.exp(-squares[..., None] / (2 * jnp.square(scales)))
        return jnp.mean(each, axis=2) * (labels[:, None] == whose[None])

    def step(
        self, state: TrainState, batch: ClipBatch, noise_key: jax.Array, key: Any
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """One update of the generator.

        Args:
            state: before.
            batch: this device's share of the records drawn.
            noise_key: [8] uint32 of this step alone.
            key: [4] uint32 of public coins.
        """
        key_z, key_label = jax.random.split(public_key(key))
        number = self.settings.batch_size
        fake_labels = prior_labels(self.config.data.prior, key_label, number)
        z = jax.random.normal(key_z, (number, self.config.networks.z_dim))
        records = _everybody(batch)

        def loss(generator: Any) -> jax.Array:
            made = latent_sampler(self.config).generator.apply(
                generator, z, fake_labels
            )
            noisy = self.noisy_mmd(records, _flat(made), fake_labels, noise_key)
            return jnp.square(noisy)

        value, gradient = jax.value_and_grad(loss)(state.params)
        decay = self.settings.ema_decay
        state = averaged_step(self._optimizer, gradient, state, decay)
        return state, {'loss_match': value}

    def noisy_mmd(
        self,
        records: tuple[jax.Array, jax.Array, jax.Array],
        fakes: jax.Array,
        fake_labels: jax.Array,
        noise_key: jax.Array,
    ) -> jax.Array:
        """Squared MMD plus what the process adds to it, which has no gradient.

        Args:
            records: [n, pixels] images, [n] labels, [n] which are there.
            fakes: [m, pixels].
            fake_labels: [m].
            noise_key: [8] uint32 of this step alone.
        """
        real, labels, present = records
        share = present / jnp.maximum(jnp.sum(present), 1.0)
        places = jnp.concatenate([real, fakes])
        whose = jnp.concatenate([labels, fake_labels])
        gram = self.kernel(places, whose, places, whose)
        each = jnp.full(len(fakes), 1 / len(fakes))
        apart = jnp.concatenate([share, -each])
        mmd = apart @ gram @ apart
        # The process enters at the records with their share, at the fakes with -2 of theirs.
        enters = jnp.concatenate([share, -2 * each])
        spread = jnp.sqrt(jnp.maximum(enters @ gram @ enters, 0.0))
        std = self.mechanism.noise_std * jax.lax.stop_gradient(spread)
        return mmd + add_gaussian(jnp.zeros(()), noise_key, std)


def _flat(images: jax.Array) -> jax.Array:
    """[n, pixels] in [0, 1], reduced."""
    return reduced((images + 1) / 2).reshape(len(images), -1)


def _everybody(batch: ClipBatch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """All devices' records on each: images, labels, and 1 for those that are there."""
    batch = batch.of_all_devices().without_padding()
    present = jnp.where(batch.is_padding_example[:, 0], 0.0, 1.0)
    labels = jnp.asarray(batch.labels[:, 0])
    return _flat(to_float(jnp.asarray(batch.images[:, 0]))), labels, present
