"""DPBA-WGAN's sampler: one generator, or one for each label."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.release.samplers.latent import LatentSampler, latent_sampler
from dpaf_jax.release.samplers.protocol import Params


@dataclasses.dataclass(frozen=True)
class SamplerPerLabel:
    """A generator for each label; parameters have a leading axis [K]."""

    generator: LatentSampler
    num_classes: int

    def init(self, key: jax.Array) -> Params:
        """See `Sampler`."""
        return jax.vmap(self.generator.init)(jax.random.split(key, self.num_classes))

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """See `Sampler`: every generator draws all, each image is its own label's.

        K passes, but no copy of the parameters for each image.
        """
        images: Any = 0.0
        for k in range(self.num_classes):
            own = jax.tree.map(lambda leaf, k=k: leaf[k], params)
            made = self.generator.sample(own, key, labels)
            images = jnp.where((labels == k)[:, None, None, None], made, images)
        return images


def dpba_wgan_sampler(config: Config) -> LatentSampler | SamplerPerLabel:
    """DPBA-WGAN's: one generator, or one for each label."""
    generator = latent_sampler(config)
    if config.dpba_wgan.per_label:
        return SamplerPerLabel(generator, config.data.num_classes)
    return generator
