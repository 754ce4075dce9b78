"""Random Fourier features of images (Rahimi and Recht 2007): public, never trained."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.networks.fixed.cosine import cosine
from dpaf_jax.networks.images import reduced


def frequencies(
    key: jax.Array, image_shape: tuple[int, ...], number: int, scales: Sequence[float]
) -> jax.Array:
    """Draws the frequencies of a mean of Gaussian kernels by public coins.

    Args:
        key: public coins.
        image_shape: (H, W, C).
        number: of frequencies; each length scale gets an equal share, in turn.
        scales: length scales, above 0, in units of the root of the number of pixels, for
            pixels in [0, 1].

    Returns:
        [pixels, number] float32, for `waves`.
    """
    pixels = reduced(jnp.zeros((1, *image_shape))).size
    each = np.resize(np.asarray(scales, np.float32), number) * math.sqrt(pixels)
    return jax.random.normal(key, (pixels, number)) / each


def waves(weights: jax.Array, images: jax.Array) -> jax.Array:
    """Cosines and sines of images: rows of norm 1, but for rounding.

    The inner product of two rows tends to the mean over scales l of
    exp(-|x - y|^2 / (2 l^2)).

    Args:
        weights: [pixels, n], from `frequencies`.
        images: [B, H, W, C] float32 in [-1, 1].

    Returns:
        [B, 2 n] float32.
    """
    light = reduced((images + 1) / 2).reshape(len(images), -1)
    angles = light @ weights
    both = cosine(jnp.concatenate([angles, angles - math.pi / 2], axis=1))
    return both / math.sqrt(weights.shape[1])
