"""From released parameters to images: each method's sampler, by the method's name.

Neither data nor training code can be reached from here: a release needs no more.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.errors import UserError
from dpaf_jax.networks import Generator, make_generator, to_uint8
from dpaf_jax.pictures import sample_grid
from dpaf_jax.score_sampler import score_sampler

Params = Any


class Sampler(Protocol):
    """Draws images of given classes."""

    def init(self, key: jax.Array) -> Params:
        """Random parameters, as training starts from: their names and shapes."""

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """[B] int32 labels to [B, H, W, C] float32 images in [-1, 1]."""


@dataclasses.dataclass(frozen=True)
class LatentSampler:
    """One pass of a generator network over normal draws."""

    generator: Generator
    z_dim: int

    def init(self, key: jax.Array) -> Params:
        """See `Sampler`."""
        z, labels = jnp.zeros((1, self.z_dim)), jnp.zeros(1, jnp.int32)
        return self.generator.init(key, z, labels)

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """See `Sampler`."""
        z = jax.random.normal(key, (len(labels), self.z_dim))
        images: jax.Array = self.generator.apply(params, z, labels)
        return images


def latent_sampler(config: Config) -> LatentSampler:
    """Of the generator that reverses the discriminator."""
    return LatentSampler(make_generator(config), config.networks.z_dim)


SAMPLERS: dict[str, Callable[[Config], Sampler]] = {
    'dpaf': latent_sampler,
    'dpgen': score_sampler,
    'dp_merf': latent_sampler,
    'dp_gan': latent_sampler,
    'dpba_wgan': latent_sampler,
    'gs_wgan': latent_sampler,
}


def make_sampler(config: Config) -> Sampler:
    """The sampler of a config's method; UserError for an unknown one."""
    if config.method not in SAMPLERS:
        raise UserError(
            'config.method',
            f'is {config.method!r}',
            f'Choose one of {", ".join(SAMPLERS)}',
        )
    return SAMPLERS[config.method](config)


def preview(
    config: Config, params: Params, key: jax.Array, per_class: int = 8
) -> Image.Image:
    """A picture of samples, a row per class: what progress is judged by."""
    k = config.data.num_classes
    labels = np.repeat(np.arange(k), per_class)
    made = jax.jit(make_sampler(config).sample)(params, key, labels)
    return sample_grid(np.asarray(to_uint8(made)), labels, k, per_class)
