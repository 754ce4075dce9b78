"""Random Fourier features as an embedding: Gaussian kernels, one or the mean of several."""

import dataclasses

import jax

from dpaf_jax.networks.fixed.fourier import frequencies, waves


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
