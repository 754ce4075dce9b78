"""Networks that grow by a public schedule of generator steps: PGGAN's.

What a step sees of the schedule is the generator's `steps` in the state, a count: public. The
discriminator's noisy gradient has noise at parameters of doublings that have not begun, too;
it is dropped there, which is post-processing. Their own gradient is 0 before the noise.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.methods.adversarial.networks import (
    AdversarialState,
    Adversaries,
)
from dpaf_jax.networks.architecture import make_architecture
from dpaf_jax.networks.gans.growth import Grown, grown_alone, num_phases, weights_at
from dpaf_jax.release.samplers.protocol import Sampler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.phase import Metrics


class GrowingAdversaries(Adversaries):
    """Both networks at the stage of the state's step; see `Adversaries`."""

    def at(self, state: AdversarialState) -> Adversaries:
        """The networks as far as they have grown."""
        progress = self._progress(state.generator.steps)
        generator = Grown(self.sampler.generator, progress)
        return Adversaries(
            self.config,
            self.settings,
            dataclasses.replace(self.sampler, generator=generator),
            Grown(self.discriminator, progress),
            self.num_devices,
        )

    def shown(self, state: AdversarialState) -> Sampler:
        """What the generator has learnt to make so far."""
        progress = float(self._progress(state.generator.steps))
        generator = Grown(self.sampler.generator, progress)
        return dataclasses.replace(self.sampler, generator=generator)

    def update_discriminator(
        self, state: AdversarialState, gradient: Any
    ) -> tuple[AdversarialState, Metrics]:
        """Adam's step of what has begun to grow, by a gradient that is noisy already."""
        weights = self._weights(state.generator.steps)
        return super().update_discriminator(state, grown_alone(gradient, weights))

    def apply_generator_gradient(
        self, state: AdversarialState, gradient: Any
    ) -> AdversarialState:
        """As ever; where the next doubling begins, both optimisers begin anew.

        As in the code of Karras et al.: Adam's long memory would make the first steps of
        new parameters thirty times as long.
        """
        before = self._weights(state.generator.steps)
        made = super().apply_generator_gradient(state, gradient)
        begins = jnp.any((self._weights(made.generator.steps) > 0) & (before == 0))

        def anew(opt_state: Any) -> Any:
            return jax.tree.map(lambda leaf: jnp.where(begins, 0, leaf), opt_state)

        return made._replace(
            discriminator_opt_state=anew(made.discriminator_opt_state),
            generator=made.generator._replace(opt_state=anew(made.generator.opt_state)),
        )

    def _progress(self, steps: jax.Array) -> jax.Array:
        return steps / self.settings.generator_steps

    def _weights(self, steps: jax.Array) -> jax.Array:
        return weights_at(self._progress(steps), _doublings(self.config))


def check_grows(config: Config) -> None:
    """UserError where a run has too few steps to grow to the whole image."""
    phases, steps = num_phases(_doublings(config)), config.dp_gan.generator_steps
    if steps < phases:
        raise UserError(
            'config.dp_gan.generator_steps',
            f'is {steps}, but pggan doubles the side {_doublings(config)} times, '
            f'in {phases} phases',
            f'Use at least {phases}, or fewer networks.layers',
        )


def _doublings(config: Config) -> int:
    return sum(make_architecture(config).parts)
