"""DP-CGAN: reals and fakes are clipped each alone (Torkzadehmahani, Kairouz, Paten 2019).

"DP-CGAN: Differentially Private Synthetic Data and Label Generation": as DP-GAN beside it, but
for the discriminator's gradient, which in a step is

    sum over reals of clip(gradient of BCE(D(real), 1), C)  +  noise of multiplier * C
    + sum over fakes of clip(gradient of BCE(D(fake), 0), C),    divided by the batch's size.

Who is paired with what decides on the bound. The fakes are `batch_size` in number, a public
constant, and have labels of the public prior: given the parameters, which earlier noisy sums
have made, their part is a function of public coins. It moves with no record, needs no noise,
and would not need its clip, which keeps the two parts of one size. So a record moves the step
by its real alone, by C at most. Fakes with the batch's own labels, as in the released code,
would move with the records, too: by 2C together.
"""

from collections.abc import Callable
from typing import Any

import jax
import optax

from dpaf_jax.config import Config
from dpaf_jax.methods.adversarial.networks import AdversarialState
from dpaf_jax.methods.adversarial.phase import AdversarialPhase
from dpaf_jax.methods.dp_gan.gan import DpGan, discriminator_plan
from dpaf_jax.methods.dp_gan.networks import CHOICES, Choice
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.noise import noisy_total
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release.samplers.latent import LatentSampler, latent_sampler
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch, prior_labels, share_of_fakes
from dpaf_jax.training.phase import Metrics
from dpaf_jax.training.run import Run

Loss = Callable[[Any, tuple[jax.Array, jax.Array]], jax.Array]


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: see `discriminator_plan`."""
    return discriminator_plan(config, num_examples, 'one per singleton')


def train(run: Run) -> Any:
    """Trains both networks in turn; returns the average of the generator's parameters."""
    gan = DpCgan(run.config, run.plan, len(run.devices))
    return run.train(AdversarialPhase(run, gan)).generator.ema_params


class DpCgan(DpGan):
    """The static part; its methods are pure functions of arrays."""

    @property
    def choice(self) -> Choice:
        """No other: its loss takes reals and fakes apart."""
        return CHOICES['dcgan']

    @property
    def sampler(self) -> LatentSampler:
        """The generator."""
        return latent_sampler(self.config)

    def query(self, state: AdversarialState, batch: ClipBatch, key: jax.Array) -> Any:
        """This device's pre-noise sum of clipped gradients by reals.

        Sensitivity of the sum over devices: `l2_clip_norm`. A real's gradient depends on
        its record and on parameters that noisy outputs have made.

        Args:
            state: gives the discriminator.
            batch: singletons.
            key: not used: no coin is in it.
        """
        batch = batch.without_padding()
        return clipped_gradient_sum(
            self._of_one(1.0),
            state.discriminator,
            (to_float(batch.images[:, 0]), batch.labels[:, 0]),
            batch.is_padding_example[:, 0],
            l2_clip_norm=self.mechanism.l2_clip_norm,
            grid=self.mechanism.grid,
        )

    def fakes_gradient(self, state: AdversarialState, key_data: jax.Array) -> Any:
        """The sum over devices of clipped gradients by fakes: post-processing.

        Args:
            state: gives both networks.
            key_data: [4] uint32 of the step's public coins, equal on all devices.
        """
        key_z, key_label = jax.random.split(public_key(key_data))
        size = int(self.mechanism.expected_batch_size)
        labels = prior_labels(self.config.data.prior, key_label, size)
        fakes, mine, is_padding = share_of_fakes(
            self.adversaries.sampler,
            state.generator.params,
            key_z,
            labels,
            self.num_devices,
        )
        sums = clipped_gradient_sum(
            self._of_one(0.0),
            state.discriminator,
            (fakes, mine),
            is_padding,
            l2_clip_norm=self.mechanism.l2_clip_norm,
            grid=None,  # no noise of its own
        )
        return parallel.total(sums)

    def discriminator_step(
        self,
        state: AdversarialState,
        batch: ClipBatch,
        noise_key: jax.Array,
        key: jax.Array,
        noise_std: jax.Array,
    ) -> tuple[AdversarialState, Metrics]:
        """One update by noised reals and by fakes; see `DpGan.discriminator_step`."""
        reals = noisy_total(self.query(state, batch, key), noise_key, noise_std)
        fakes = self.fakes_gradient(state, key)
        size = self.mechanism.expected_batch_size
        gradient = jax.tree.map(lambda r, f: (r + f) / size, reals, fakes)
        return self.adversaries.update_discriminator(state, gradient)

    def _of_one(self, target: float) -> Loss:
        """BCE of one image, [H, W, C] float32, with its label: real, 1, or fake, 0."""

        def loss(params: Any, one: tuple[jax.Array, jax.Array]) -> jax.Array:
            image, label = one
            discriminator = self.adversaries.discriminator
            (logit,) = discriminator.apply(params, image[None], label[None])
            return optax.sigmoid_binary_cross_entropy(logit, target)

        return loss
