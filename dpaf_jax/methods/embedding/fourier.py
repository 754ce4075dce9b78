"""Random Fourier features as an embedding: Gaussian kernels, one or the mean of several."""

import dataclasses
import math
from typing import Any

import jax

from dpaf_jax.config import Config
from dpaf_jax.methods.embedding.plan import settings_of
from dpaf_jax.networks.fixed.fourier import frequencies, waves
from dpaf_jax.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class FourierFeatures:
    """Rows [cos(Wx), sin(Wx)] / sqrt(F / 2), of norm 1: every cosine has its sine.

    Attributes:
        shape: (H, W, C) of an image.
        features: F, even.
        length_scales: of the kernels, times the root of the number of pixels.
    """

    shape: tuple[int, int, int]
    features: int
    length_scales: tuple[float, ...]

    def init(self, key: jax.Array) -> jax.Array:
        """[pixels, F / 2] frequencies, in public."""
        return frequencies(key, self.shape, self.features // 2, self.length_scales)

    def rows(self, coins: jax.Array, images: jax.Array) -> jax.Array:
        """See `FeatureMap`."""
        return waves(coins, images)


def fourier_features(config: Config) -> FourierFeatures:
    """Those that the fields of the method that runs ask for."""
    fields: Any = settings_of(config)
    return FourierFeatures(config.data.shape, fields.features, fields.length_scales)


def check_fourier(config: Config) -> None:
    """UserError where cosines and sines are no pairs, or a length scale is not positive."""
    made = fourier_features(config)
    if made.features % 2:
        problem, remedy = f'is {made.features}', 'Use an even number: cosines and sines'
        raise UserError(f'config.{config.method}.features', problem, remedy)
    scales = made.length_scales
    if not scales or not all(0 < scale < math.inf for scale in scales):
        problem, remedy = f'is {scales}', 'Give one or more numbers above 0'
        raise UserError(f'config.{config.method}.length_scales', problem, remedy)
