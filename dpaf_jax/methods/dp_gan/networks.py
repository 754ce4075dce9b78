"""What DP-GAN may be made of: discriminator and losses of DCGAN, BigGAN and PGGAN.

A loss is of one trio: a record, a fake of its label, and a mix of the two, by public coins of
the record's own. Its gradient is what is clipped, so each keeps the guarantee: what a
discriminator says of an image is decided by image, label, parameters and the step, and nothing
here acts across records. What these papers compute over a batch of reals is left out: batch
normalisation and the minibatch standard deviation (`networks/gans/`).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from dpaf_jax.config import Config
from dpaf_jax.config.methods import AdversarialConfig
from dpaf_jax.methods.adversarial.networks import Adversaries, Told, widths
from dpaf_jax.methods.adversarial.wgan import Trio, gradient_penalty
from dpaf_jax.methods.dp_gan.growing import GrowingAdversaries
from dpaf_jax.networks.discriminator import Discriminator
from dpaf_jax.networks.gans.biggan import BigGanDiscriminator
from dpaf_jax.networks.gans.pggan import PgganDiscriminator

PENALTY, DRIFT = 10.0, 1e-3  # PGGAN, appendix A.1


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of `CHOICES`.

    Attributes:
        discriminator: by the config and the method's own fields.
        loss: of a discriminator, its parameters and one trio: what it minimises.
        told: what the generator minimises, and what else is told of a fake's answers.
        adversaries: how the networks change from step to step.
    """

    discriminator: Callable[[Config, AdversarialConfig], nn.Module]
    loss: Callable[[Any, Any, Trio], jax.Array]
    told: Told
    adversaries: type[Adversaries] = Adversaries


def cross_entropy(discriminator: Any, params: Any, trio: Trio) -> jax.Array:
    """BCE of the real against 1 and of the fake against 0 (Goodfellow et al. 2014)."""
    logits = _answers(discriminator, params, trio)
    targets = jnp.array([1.0, 0.0])
    return jnp.sum(optax.sigmoid_binary_cross_entropy(logits, targets))


def hinge(discriminator: Any, params: Any, trio: Trio) -> jax.Array:
    """max(0, 1 - D(real)) + max(0, 1 + D(fake)): BigGAN's (Lim and Ye 2017)."""
    real, fake = _answers(discriminator, params, trio)
    return nn.relu(1 - real) + nn.relu(1 + fake)


def wasserstein(discriminator: Any, params: Any, trio: Trio) -> jax.Array:
    """D(fake) - D(real), the penalty at the trio's own mix, and D(real) held near 0.

    Source: Karras et al. 2018, appendix A.1; WGAN-GP (Gulrajani et al. 2017). The penalty is
    on the gradient by the image in full size, so that its unit is the same at every stage.
    """
    real, fake = _answers(discriminator, params, trio)
    penalty = gradient_penalty(discriminator, params, trio)
    return fake - real + PENALTY * penalty + DRIFT * jnp.square(real)


def _answers(discriminator: Any, params: Any, trio: Trio) -> jax.Array:
    """[2]: of the real, of the fake."""
    images = jnp.stack([trio.real, trio.fake])
    labels = jnp.stack([trio.label, trio.label])
    return discriminator.apply(params, images, labels)


def _non_saturating(logits: jax.Array) -> Mapping[str, jax.Array]:
    loss = optax.sigmoid_binary_cross_entropy(logits, jnp.ones_like(logits))
    return {'loss_generator': loss, 'fakes_rejected': logits < 0}


def _minus(answers: jax.Array) -> Mapping[str, jax.Array]:
    return {'loss_generator': -answers, 'fakes_rejected': answers < 0}


def _critic(scores: jax.Array) -> Mapping[str, jax.Array]:
    return {'loss_generator': -scores}  # a score has no zero to be above of


def _dcgan(config: Config, gan: AdversarialConfig) -> nn.Module:
    """Narrow: the noise grows with the root of its parameters' number."""
    return Discriminator(
        widths(config, gan.width),
        config.networks.kernel_size,
        gan.fc_width,
        config.data.num_classes,
    )


def _biggan(config: Config, gan: AdversarialConfig) -> nn.Module:
    return BigGanDiscriminator(widths(config, gan.width), config.data.num_classes)


def _pggan(config: Config, gan: AdversarialConfig) -> nn.Module:
    inner = widths(config, gan.width)
    return PgganDiscriminator((inner[0], *inner), gan.fc_width, config.data.num_classes)


CHOICES = {
    'dcgan': Choice(_dcgan, cross_entropy, _non_saturating),
    'biggan': Choice(_biggan, hinge, _minus),
    'pggan': Choice(_pggan, wasserstein, _critic, GrowingAdversaries),
}
