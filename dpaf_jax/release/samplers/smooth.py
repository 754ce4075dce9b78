"""Samplers whose images are smooth: made small, and enlarged.

For methods whose noise falls on images, or on directions in which images move. What these
do not see must not be there, or noise would move it about.
"""

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

    Attributes:
        small: the generator of the small images.
        size: of the large ones.
    """

    small: Any
    size: int

    def init(self, *args: Any) -> Params:
        """As of a module."""
        return self.small.init(*args)

    def apply(self, params: Params, z: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, z_dim] and [B] to [B, size, size, C] in [-1, 1]."""
        small = self.small.apply(params, z, labels)
        shape = (len(small), self.size, self.size, small.shape[-1])
        return jax.image.resize(small, shape, 'bilinear')


def g_pate_sampler(config: Config) -> LatentSampler:
    """G-PATE's student, smooth where the votes were."""
    return _smooth(config, config.g_pate.cell)


def dp_sinkhorn_sampler(config: Config) -> LatentSampler:
    """DP-Sinkhorn's generator, smooth where fakes and records are compared."""
    return _smooth(config, config.dp_sinkhorn.cell)


def gs_wgan_sampler(config: Config) -> LatentSampler:
    """GS-WGAN's generator, smooth where its critics look."""
    return _smooth(config, config.gs_wgan.cell)


def at_cells(config: Config, cell: int) -> Config:
    """The config of images of a pixel for each cell; the last cells may be narrower."""
    size = -(-config.data.image_size // cell)
    return dataclasses.replace(
        config, data=dataclasses.replace(config.data, image_size=size)
    )


def _smooth(config: Config, cell: int) -> LatentSampler:
    sampler, size = latent_sampler(config), config.data.image_size
    if cell == 1 or config.data.columns:  # a table has no cells
        return sampler
    small = make_generator(at_cells(config, cell))
    return dataclasses.replace(sampler, generator=SmoothGenerator(small, size))
