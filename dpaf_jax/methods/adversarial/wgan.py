"""Wasserstein critics with a gradient penalty, one image at a time (Gulrajani et al. 2017)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.config.methods import AdversarialConfig
from dpaf_jax.methods.adversarial.networks import widths
from dpaf_jax.networks.discriminator import Discriminator
from dpaf_jax.networks.layers import convolve_by_products

ROOT_AT_LEAST = 1e-12  # a squared norm of 0 has a root without a derivative


class Trio(NamedTuple):
    """A record, a fake of its label, and where between them the penalty is taken.

    Attributes:
        real: [H, W, C] float32.
        fake: of the same shape.
        label: int32 scalar.
        mix: float32 scalar in [0, 1], the real's share in the interpolate.
    """

    real: jax.Array
    fake: jax.Array
    label: jax.Array
    mix: jax.Array


def make_critic(config: Config, settings: AdversarialConfig) -> Discriminator:
    """Strided convolutions and two fully connected layers, one answer for each class.

    No normalisation: it would mix examples, and the penalty is on each example's own
    gradient. Narrow, since noise grows with the root of the number of parameters.
    """
    return Discriminator(
        widths(config, settings.width),
        config.networks.kernel_size,
        settings.fc_width,
        config.data.num_classes,
        convolve_by_products,
    )


def distance(critic: Discriminator, params: Any, trio: Trio) -> jax.Array:
    """D(fake) - D(real): its mean over examples is minus the Wasserstein distance."""
    images = jnp.stack([trio.fake, trio.real])
    labels = jnp.stack([trio.label, trio.label])
    fake, real = critic.apply(params, images, labels)
    return fake - real


def gradient_penalty(critic: Discriminator, params: Any, trio: Trio) -> jax.Array:
    """(|gradient of D by the image| - 1)^2 at the trio's own interpolate."""
    between = trio.mix * trio.real + (1 - trio.mix) * trio.fake

    def answer(image: jax.Array) -> jax.Array:
        return critic.apply(params, image[None], trio.label[None])[0]

    squared = jnp.sum(jnp.square(jax.grad(answer)(between)))
    return jnp.square(jnp.sqrt(squared + ROOT_AT_LEAST) - 1)
