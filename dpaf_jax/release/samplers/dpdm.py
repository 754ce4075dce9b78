"""DPDM's sampler: Heun's steps down EDM's levels, with fresh noise or without."""

import jax

from dpaf_jax.config import Config
from dpaf_jax.networks.score import make_score_network
from dpaf_jax.release.samplers.dpgen import Denoise, ScoreSampler, heun


class DiffusionSampler(ScoreSampler):
    """Draws images of given classes; see `protocol.Sampler`."""

    @property
    def levels(self) -> tuple[float, ...]:
        """Falling, evenly in their rho-th root (Karras et al. 2022, equation 5)."""
        dpgen, rho = self.config.dpgen, self.config.dpdm.rho
        first, last = dpgen.sigma_max ** (1 / rho), dpgen.sigma_min ** (1 / rho)
        part = [i / (dpgen.num_levels - 1) for i in range(dpgen.num_levels)]
        return tuple((first + p * (last - first)) ** rho for p in part)

    def descent(self, denoise: Denoise, start: jax.Array, key: jax.Array) -> jax.Array:
        """From noise [B, ...] of the first level to images."""
        return heun(denoise, start, self.levels, self.config.dpdm.churn, key)


def dpdm_sampler(config: Config) -> DiffusionSampler:
    """Of DPDM."""
    return DiffusionSampler(make_score_network(config), config)
