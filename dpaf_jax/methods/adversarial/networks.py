"""A discriminator and a generator in turn: what the adversarial methods share.

A method brings its discriminator's private step and its losses; networks, optimisers,
paired fakes and the generator's update are here. Paired fakes belong to the private step:
each is of its own record's label. All else in this file is post-processing.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.config.methods import AdversarialConfig
from dpaf_jax.networks.architecture import make_architecture
from dpaf_jax.privacy.keys import own_coins, public_key
from dpaf_jax.release.samplers.latent import LatentSampler
from dpaf_jax.release.samplers.protocol import Sampler
from dpaf_jax.release.samplers.registry import make_sampler
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import prior_labels, share_of_fakes
from dpaf_jax.training.optimizers import (
    TrainState,
    averaged_step,
    descend,
    make_optimizer,
)
from dpaf_jax.training.phase import Metrics

# Networks, and the label that they are of (None: of all), to themselves a step later.
Turn = Callable[['AdversarialState', Any], tuple['AdversarialState', Metrics]]
# A discriminator's answers [B] to what is told of each; 'loss_generator' is minimised.
Told = Callable[[jax.Array], Mapping[str, jax.Array]]


class AdversarialState(NamedTuple):
    """Everything that persists between steps; all of it is released or public.

    Attributes:
        discriminator: parameters; a function of noisy sums.
        discriminator_opt_state: Adam's.
        generator: parameters, their moving average, and what else its steps need.
    """

    discriminator: Any
    discriminator_opt_state: optax.OptState
    generator: TrainState


@dataclasses.dataclass(frozen=True)
class Adversaries:
    """Both networks and their optimisers; the methods are pure functions of arrays.

    Attributes:
        config: of the run.
        settings: the method's own fields.
        sampler: the generator.
        discriminator: of images [B, H, W, C] and labels [B] to answers [B].
        num_devices: D.
    """

    config: Config
    settings: AdversarialConfig
    sampler: LatentSampler
    discriminator: Any  # a module, or what has init and apply like one
    num_devices: int

    def optimizer(self, part: str) -> optax.GradientTransformation:
        """Adam with beta1 = 0.5, of the 'discriminator' or of the 'generator'."""
        return make_optimizer('adam', getattr(self.settings, f'{part}_learning_rate'))

    def init(self, key: jax.Array) -> AdversarialState:
        """Random parameters: public coins."""
        key_discriminator, key_generator = jax.random.split(key)
        image = jnp.zeros((1, *self.config.data.shape))
        label = jnp.zeros(1, jnp.int32)
        discriminator = self.discriminator.init(key_discriminator, image, label)
        generator = self.sampler.init(key_generator)
        return AdversarialState(
            discriminator=discriminator,
            discriminator_opt_state=self.optimizer('discriminator').init(discriminator),
            generator=TrainState.start(generator, self.optimizer('generator')),
        )

    def own(self, state: AdversarialState) -> AdversarialState:
        """The networks whose turn it is: here there are no others."""
        return state

    def at(self, state: AdversarialState) -> 'Adversaries':
        """The networks as they are at a step: here they do not change."""
        return self

    def shown(self, state: AdversarialState) -> Sampler:
        """What samples at a step are drawn with, by the averaged parameters."""
        return make_sampler(self.config)

    def in_turn(
        self, state: AdversarialState, step: Turn
    ) -> tuple[AdversarialState, Metrics]:
        """Takes a step of the networks whose turn it is, which have all labels here."""
        return step(state, None)

    def paired_fakes(
        self, generator: Any, labels: jax.Array, keys: jax.Array
    ) -> jax.Array:
        """[U, H, W, C] fakes, one for each record, of its label and from its own key."""
        z = own_coins(jax.random.normal, keys, self.sampler.z_dim)
        return self.sampler.generator.apply(generator, z, labels)

    def update_discriminator(
        self, state: AdversarialState, gradient: Any
    ) -> tuple[AdversarialState, Metrics]:
        """Adam's step by a gradient that is noisy already."""
        params, opt_state = descend(
            self.optimizer('discriminator'),
            gradient,
            state.discriminator,
            state.discriminator_opt_state,
        )
        state = state._replace(discriminator=params, discriminator_opt_state=opt_state)
        return state, {'noisy_gradient_norm': optax.tree.norm(gradient)}

    def update_generator(
        self,
        state: AdversarialState,
        key_data: jax.Array,
        told: Told,
        label: jax.Array | None = None,
    ) -> tuple[AdversarialState, Metrics]:
        """One update by fakes: post-processing.

        Args:
            state: before.
            key_data: [4] uint32 of public coins.
            told: the loss, and what else is told of a fake.
            label: of all fakes; None draws each one's from the public prior.
        """
        key_z, key_label = jax.random.split(public_key(key_data))
        number, at = self.settings.generator_batch_size, self.at(state)
        if label is None:
            labels = prior_labels(self.config.data.prior, key_label, number)
        else:
            labels = jnp.full(number, label)

        def loss(generator: Any) -> tuple[jax.Array, Metrics]:
            fakes, mine, is_padding = share_of_fakes(
                at.sampler, generator, key_z, labels, self.num_devices
            )
            answers = at.discriminator.apply(state.discriminator, fakes, mine)
            sums = {
                name: jnp.sum(jnp.where(is_padding, 0.0, each))
                for name, each in told(answers).items()
            }
            means = {name: parallel.total(s) / number for name, s in sums.items()}
            return means['loss_generator'], means

        (_, metrics), gradient = parallel.value_and_gradient(
            loss, state.generator.params, has_aux=True
        )
        return self.apply_generator_gradient(state, gradient), metrics

    def apply_generator_gradient(
        self, state: AdversarialState, gradient: Any
    ) -> AdversarialState:
        """The state after the generator's step by a gradient by its parameters."""
        return state._replace(generator=self.descended(state.generator, gradient))

    def descended(self, generator: TrainState, gradient: Any) -> TrainState:
        """After Adam's step, and the moving average's, which is what is released."""
        optimizer, decay = self.optimizer('generator'), self.settings.ema_decay
        return averaged_step(optimizer, gradient, generator, decay)


class AdversariesPerLabel(Adversaries):
    """A pair of networks for each label, which take turns: a public round-robin.

    All leaves of the state have a leading axis [K]. A turn ends with its generator's step,
    so the state itself knows whose turn it is.
    """

    def init(self, key: jax.Array) -> AdversarialState:
        """Random parameters of each pair: public coins."""
        keys = jax.random.split(key, self.config.data.num_classes)
        return jax.lax.map(super().init, keys)

    def own(self, state: AdversarialState) -> AdversarialState:
        """The pair whose turn it is."""
        label = self._label(state)
        return jax.tree.map(lambda leaf: leaf[label], state)

    def in_turn(
        self, state: AdversarialState, step: Turn
    ) -> tuple[AdversarialState, Metrics]:
        """Takes a step of the pair whose turn it is; the others stay as they are."""
        label = self._label(state)
        stepped, metrics = step(self.own(state), label)
        state = jax.tree.map(
            lambda every, own: every.at[label].set(own), state, stepped
        )
        return state, metrics

    def _label(self, state: AdversarialState) -> jax.Array:
        return jnp.sum(state.generator.steps) % self.config.data.num_classes


def widths(config: Config, first: int) -> tuple[int, ...]:
    """Maps of a discriminator's layers: `first`, doubling with each halving of the side."""
    return tuple(first * 2**i for i in range(sum(make_architecture(config).parts)))
