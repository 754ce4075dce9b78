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

`dp_gan.network` chooses both networks and their loss (networks.py). DPGEN (figure 4) trained
BigGAN and PGGAN so, and calls what they draw disastrous. The mechanism is the same for all.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dpaf_jax.config import Config
from dpaf_jax.config.methods import DpCganConfig, DpGanConfig
from dpaf_jax.methods.adversarial.networks import (
    AdversarialState,
    Adversaries,
)
from dpaf_jax.methods.adversarial.phase import AdversarialPhase
from dpaf_jax.methods.adversarial.wgan import Trio
from dpaf_jax.methods.dp_gan.growing import check_grows
from dpaf_jax.methods.dp_gan.networks import CHOICES, Choice
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.budgets import check_batch_size, plan_of_one
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.keys import RunKeys, own_coins, record_keys
from dpaf_jax.privacy.noise import noisy_total
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.privacy.sampling import Draw, poisson_draw
from dpaf_jax.release.samplers.dp_gan import dp_gan_sampler
from dpaf_jax.release.samplers.latent import LatentSampler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.phase import Metrics
from dpaf_jax.training.run import Run

DISCRIMINATOR = 'discriminator'


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: see `discriminator_plan`."""
    if config.dp_gan.network != 'dcgan':
        _check_generator(config)
    if config.dp_gan.network == 'pggan':
        check_grows(config)
    return discriminator_plan(config, num_examples, 'one per record with its fake')


def _check_generator(config: Config) -> None:
    if config.networks.generator != 'reverse':
        problem = f'is {config.networks.generator!r}, but {config.dp_gan.network} has'
        remedy = "Set it to 'reverse'"
        where = 'config.networks.generator'
        raise UserError(where, f'{problem} a generator of its own', remedy)


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
    discriminator = Mechanism.bounded_sum(
        DISCRIMINATOR,
        f'sum of clipped gradients, {units}',
        config.privacy,
        num_examples,
        batch_size=gan.batch_size,
        l2_sensitivity=gan.l2_clip_norm,
        steps=gan.generator_steps * gan.discriminator_steps,
    )
    return plan_of_one(discriminator, config.privacy, num_examples)


def settings(config: Config) -> DpGanConfig | DpCganConfig:
    """The fields of the method that runs."""
    return getattr(config, config.method)


def train(run: Run) -> Any:
    """Trains both networks in turn; returns the average of the generator's parameters."""
    gan = DpGan(run.config, run.plan, len(run.devices))
    return run.train(AdversarialPhase(run, gan)).generator.ema_params


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
    def choice(self) -> Choice:
        """What it is made of."""
        return CHOICES[self.config.dp_gan.network]

    @property
    def sampler(self) -> LatentSampler:
        """The generator."""
        return dp_gan_sampler(self.config)

    @property
    def adversaries(self) -> Adversaries:
        """Networks and optimisers."""
        gan, choice = settings(self.config), self.choice
        return choice.adversaries(
            self.config,
            gan,
            self.sampler,
            choice.discriminator(self.config, gan),
            self.num_devices,
        )

    def mechanism_at(self, step: int) -> Mechanism:
        """Always the same."""
        return self.mechanism

    def charged(self, step: int) -> Mapping[str, int]:
        """See `training.phase.Phase`."""
        return {DISCRIMINATOR: step}

    def eligible(self, labels: np.ndarray, step: int) -> np.ndarray:
        """All records, always."""
        return np.arange(len(labels))

    def draw(self, keys: RunKeys, eligible: np.ndarray, step: int) -> Draw:
        """A Poisson sample."""
        return poisson_draw(self.mechanism, eligible, keys, step)

    def query(self, state: AdversarialState, batch: ClipBatch, key: jax.Array) -> Any:
        """This device's pre-noise sum of clipped gradients.

        Sensitivity of the sum over devices: `l2_clip_norm`. A trio's gradient depends on
        its record, on public coins (a latent draw and a mix) that the record's index and
        the step decide, on the step, and on parameters that noisy outputs have made.

        Args:
            state: gives both networks.
            batch: singletons.
            key: [4] uint32 of the step's public coins, equal on all devices.
        """
        adversaries, batch = self.adversaries.at(state), batch.without_padding()
        labels, keys = batch.labels[:, 0], record_keys(key, batch.index[:, 0])
        for_z, for_mix = jax.vmap(jax.random.split, out_axes=1)(keys)
        trios = Trio(
            real=to_float(batch.images[:, 0]),
            fake=adversaries.paired_fakes(state.generator.params, labels, for_z),
            label=labels,
            mix=own_coins(jax.random.uniform, for_mix),
        )
        return clipped_gradient_sum(
            functools.partial(self.choice.loss, adversaries.discriminator),
            state.discriminator,
            trios,
            batch.is_padding_example[:, 0],
            l2_clip_norm=self.mechanism.l2_clip_norm,
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
        """One update by fakes' answers: post-processing."""
        return self.adversaries.update_generator(state, key_data, self.choice.told)
