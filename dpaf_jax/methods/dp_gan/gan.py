"""DP-GAN: a conditional GAN whose discriminator learns by DP-SGD (Bie et al. 2023).

"Private GANs, Revisited": the discriminator's gradient by each record is clipped and their
sum noised, the generator learns from the discriminator by post-processing, and the noise is
made up for by many discriminator steps per generator step.

What is clipped as one. The paper clips the gradients by reals and by fakes each alone, and
adds them. A fake needs no protection, but reals that are clipped need fakes of the same size
to hold them in balance: left unclipped, the fakes decide alone. Here a record is paired with
a fake of its own label, and the sum of the two losses is one clipped unit. What reals and
fakes have in common cancels in front of the clip, and the bound is spent on what tells them
apart. The sensitivity is that of the real alone: emptying the record empties its unit. Each
alone is what DP-CGAN clips (dp_cgan.py).
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpaf_jax.config import Config
from dpaf_jax.config.methods import AdversarialConfig
from dpaf_jax.methods.adversarial.networks import (
    AdversarialState,
    Adversaries,
    Metrics,
    widths,
)
from dpaf_jax.methods.adversarial.phase import AdversarialPhase
from dpaf_jax.networks.discriminator import Discriminator
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.budgets import check_batch_size, make_plan
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.keys import RunKeys, record_keys
from dpaf_jax.privacy.noise import noisy_total
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.sampling import Draw, poisson_draw
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run

DISCRIMINATOR = 'discriminator'


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: see `discriminator_plan`."""
    return discriminator_plan(config, num_examples, 'one per record with its fake')


def discriminator_plan(config: Config, num_examples: int, units: str) -> PrivacyPlan:
    """DP-SGD on Poisson samples; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.
        units: what is clipped as one, in words.

    Raises:
        UserError: the settings do not fit N, or the budget.
    """
    gan = settings(config)
    field = f'config.{config.method}.batch_size'
    check_batch_size(field, gan.batch_size, num_examples)
    no_clip = math.isinf(config.privacy.epsilon)
    discriminator = Mechanism(
        name=DISCRIMINATOR,
        kind=f'sum of clipped gradients, {units}',
        sampling_prob=gan.batch_size / num_examples,
        l2_sensitivity=math.inf if no_clip else gan.l2_clip_norm,
        steps=gan.generator_steps * gan.discriminator_steps,
        expected_batch_size=float(gan.batch_size),
        capacity=gan.batch_size,
    )
    only = (DISCRIMINATOR,)
    return make_plan([discriminator], only, only, config.privacy, num_examples, None)


def settings(config: Config) -> AdversarialConfig:
    """The fields of the method that runs."""
    made: AdversarialConfig = getattr(config, config.method)
    return made


def train(run: Run) -> Any:
    """Trains both networks in turn; returns the average of the generator's parameters."""
    gan = DpGan(run.config, run.plan, len(run.devices))
    return run.train(AdversarialPhase(run, gan)).ema_params


class Pair(NamedTuple):
    """A record and a fake of its label: what is clipped as one.

    Attributes:
        real: [H, W, C] float32.
        fake: of the same shape.
        label: int32 scalar.
    """

    real: jax.Array
    fake: jax.Array
    label: jax.Array


@dataclasses.dataclass(frozen=True)
class DpGan:
    """The static part; its methods are pure functions of arrays."""

    config: Config
    plan: PrivacyPlan
    num_devices: int

    @property
    def mechanism(self) -> Mechanism:
        """The one that the discriminator's training is."""
        return self.plan[DISCRIMINATOR]

    @property
    def adversaries(self) -> Adversaries:
        """Networks; D is narrow: the noise grows with the root of its parameters' number."""
        gan, net = settings(self.config), self.config.networks
        discriminator = Discriminator(
            widths(self.config, gan.width),
            net.kernel_size,
            gan.fc_width,
            self.config.data.num_classes,
        )
        return Adversaries(self.config, gan, discriminator, self.num_devices)

    def mechanism_at(self, step: int) -> Mechanism:
        """Always the same."""
        return self.mechanism

    def charged(self, step: int) -> Mapping[str, int]:
        """See `run.Phase`."""
        return {DISCRIMINATOR: step}

    def eligible(self, labels: np.ndarray, step: int) -> np.ndarray:
        """All records, always."""
        return np.arange(len(labels))

    def draw(self, keys: RunKeys, eligible: np.ndarray, step: int) -> Draw:
        """A Poisson sample."""
        return poisson_draw(self.mechanism, eligible, keys, step)

    def pair_loss(self, params: Any, pair: Pair) -> jax.Array:
        """BCE of the real against 1 and of the fake against 0."""
        images = jnp.stack([pair.real, pair.fake])
        labels = jnp.stack([pair.label, pair.label])
        return self.loss(params, images, labels, jnp.array([1.0, 0.0]))

    def loss(
        self, params: Any, images: jax.Array, labels: jax.Array, targets: jax.Array
    ) -> jax.Array:
        """BCE of the discriminator's answers, summed.

        Args:
            params: of the discriminator.
            images: [B, H, W, C] float32 in [-1, 1].
            labels: [B] int32.
            targets: [B] float32, 1 for reals and 0 for fakes.
        """
        logits = self.adversaries.discriminator.apply(params, images, labels)
        return jnp.sum(optax.sigmoid_binary_cross_entropy(logits, targets))

    def query(self, state: AdversarialState, batch: ClipBatch, key: jax.Array) -> Any:
        """This device's pre-noise sum of clipped gradients.

        Sensitivity of the sum over devices: `l2_clip_norm`. A pair's gradient depends on
        its record, on a latent draw (a public coin) that the record's index and the step
        decide, and on parameters that noisy outputs have made.

        Args:
            state: gives both networks.
            batch: singletons.
            key: [4] uint32 of the step's public coins, equal on all devices.
        """
        batch = batch.without_padding()
        labels, own = batch.labels[:, 0], record_keys(key, batch.index[:, 0])
        fakes = self.adversaries.paired_fakes(state.generator, labels, own)
        return clipped_gradient_sum(
            self.pair_loss,
            state.discriminator,
            Pair(to_float(batch.images[:, 0]), fakes, labels),
            batch.is_padding_example[:, 0],
            l2_clip_norm=self.mechanism.l2_sensitivity,
            grid=self.mechanism.grid,
        )

    def discriminator_step(
        self,
        state: AdversarialState,
        batch: ClipBatch,
        noise_key: jax.Array,
        key: jax.Array,
        noise_std: jax.Array,
    ) -> tuple[AdversarialState, Metrics]:
        """One DP-SGD update; the divisor is public.

        Args:
            state: before.
            batch: this device's share of a Poisson draw.
            noise_key: [8] uint32 of this step alone.
            key: [4] uint32 of public coins.
            noise_std: the mechanism's.
        """
        sums = self.query(state, batch, key)
        noisy = noisy_total(sums, noise_key, noise_std)
        size = self.mechanism.expected_batch_size
        gradient = jax.tree.map(lambda g: g / size, noisy)
        return self.adversaries.update_discriminator(state, gradient)

    def generator_step(
        self, state: AdversarialState, key_data: jax.Array
    ) -> tuple[AdversarialState, Metrics]:
        """One update by -log D on fakes (non-saturating): post-processing."""
        return self.adversaries.update_generator(state, key_data, _told)


def _told(logits: jax.Array) -> Mapping[str, jax.Array]:
    loss = optax.sigmoid_binary_cross_entropy(logits, jnp.ones_like(logits))
    return {'loss_generator': loss, 'fakes_rejected': logits < 0}
