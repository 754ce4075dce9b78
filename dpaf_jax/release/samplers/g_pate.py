"""G-PATE's sampler: the student, smooth where the votes were."""

import dataclasses
from typing import Any

import jax

from dpaf_jax.config import Config
from dpaf_jax.networks.generator import make_generator
from dpaf_jax.release.samplers.latent import LatentSampler, latent_sampler
from dpaf_jax.release.samplers.protocol import Params


@dataclasses.dataclass(frozen=True)
class SmoothGenerator:
    """A generator of small images, enlarged.

    G-PATE's votes are about smooth directions: what these cannot see must not be there,
    or noise would move it about.

    Attributes:
        generator: of the small images.
        size: of the large ones.
    """

    generator: Any
    size: int

    def init(self, *args: Any) -> Params:
        """As of a module."""
        return self.generator.init(*args)

    def apply(self, params: Params, z: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, z_dim] and [B] to [B, size, size, C] in [-1, 1]."""
        small = self.generator.apply(params, z, labels)
        shape = (len(small), self.size, self.size, small.shape[-1])
        return jax.image.resize(small, shape, 'bilinear')


def g_pate_sampler(config: Config) -> LatentSampler:
    """The student."""
    student, g_pate = latent_sampler(config), config.g_pate
    if g_pate.cell > 1 and not config.data.columns:
        size = config.data.image_size
        data = dataclasses.replace(config.data, image_size=-(-size // g_pate.cell))
        small = make_generator(dataclasses.replace(config, data=data))
        student = dataclasses.replace(student, generator=SmoothGenerator(small, size))
    return student
