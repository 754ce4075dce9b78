"""How strong an image's contrasts are: what features of one norm cannot say.

Fourier features of a few statistics of each channel, so that class means tell how often
images of a class are bright, flat or rough. Without them nothing that DPAGG releases says
how far light and dark lie apart, and generators of photographs overdo it.
"""

import math

import jax
import jax.numpy as jnp

COLUMNS = 128
STATISTICS = 3  # of a channel
SCALES = 0.5, 4.0  # length scales of the cosines: from fine to coarse
MEAN, SPREAD = 4.0, 2.0  # what makes a usual difference of each statistic about 1


def contrast_features(images: jax.Array, params: dict[str, jax.Array]) -> jax.Array:
    """Cosines of the statistics of each image.

    Args:
        images: [B, H, W, C] float32 in [0, 1].
        params: of `init_contrast`.

    Returns:
        [B, COLUMNS] float32 in [-1, 1].
    """
    return jnp.cos(statistics(images) @ params['weights'] + params['phases'])


def statistics(images: jax.Array) -> jax.Array:
    """[B, 3 C]: each channel's mean, log spread, and log difference of neighbours."""
    mean = jnp.mean(images, axis=(1, 2))
    variance = jnp.mean(jnp.square(images - mean[:, None, None]), axis=(1, 2))
    down = jnp.mean(jnp.abs(images[:, 1:] - images[:, :-1]), axis=(1, 2))
    right = jnp.mean(jnp.abs(images[:, :, 1:] - images[:, :, :-1]), axis=(1, 2))
    # Blank images have a logarithm and a gradient, too.
    spread = jnp.log(jnp.sqrt(variance + 1e-4) + 0.02)
    rough = jnp.log(down + right + 0.01)
    return jnp.concatenate([MEAN * mean, SPREAD * spread, SPREAD * rough], axis=1)


def init_contrast(key: jax.Array, channels: int) -> dict[str, jax.Array]:
    """Random directions at many length scales (Rahimi and Recht 2007): never trained.

    Args:
        key: public coins.
        channels: of the images.
    """
    key_weights, key_scales, key_phases = jax.random.split(key, 3)
    low, high = map(math.log, SCALES)
    scales = jax.random.uniform(key_scales, (COLUMNS,), minval=low, maxval=high)
    weights = jax.random.normal(key_weights, (STATISTICS * channels, COLUMNS))
    return {
        'weights': weights / (jnp.exp(scales) * math.sqrt(channels)),
        'phases': jax.random.uniform(key_phases, (COLUMNS,), maxval=2 * math.pi),
    }
