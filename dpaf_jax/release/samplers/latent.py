"""The sampler of a generator network: one pass over normal draws."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.networks.generator import make_generator
from dpaf_jax.networks.images import mirrored
from dpaf_jax.release.samplers.mending.denoise import nonlocal_means
from dpaf_jax.release.samplers.protocol import Params


@dataclasses.dataclass(frozen=True)
class LatentSampler:
    """One pass of a generator network over normal draws, `scale` times as wide.

    `denoise` is the strength of `nonlocal_means` over its images; with `mirrors` a coin
    mirrors each of them.
    """

    generator: Any  # a module, or what has init and apply like one
    z_dim: int
    scale: float = 1.0
    denoise: float = 0.0
    mirrors: bool = False

    def init(self, key: jax.Array) -> Params:
        """See `Sampler`."""
        z, labels = jnp.zeros((1, self.z_dim)), jnp.zeros(1, jnp.int32)
        return self.generator.init(key, z, labels)

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """See `Sampler`."""
        z = self.scale * jax.random.normal(key, (len(labels), self.z_dim))
        images = nonlocal_means(self.generator.apply(params, z, labels), self.denoise)
        if not self.mirrors:
            return images
        # Not the key that bends them (dpaf.py).
        coins = jax.random.bernoulli(
            jax.random.fold_in(key, 2), shape=(len(z), 1, 1, 1)
        )
        return jnp.where(coins, mirrored(images), images)


def latent_sampler(config: Config) -> LatentSampler:
    """Of the generator that reverses the discriminator."""
    return LatentSampler(make_generator(config), config.networks.z_dim)
