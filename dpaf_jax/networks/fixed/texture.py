"""Small squares of an image: how smooth, how grainy, how sharp at edges.

Random Fourier features of all squares of 4 x 4 pixels, averaged over parts of the image: a
kernel mean embedding (Gretton et al. 2012) of the squares that one image has. Wavelets say how
strong edges about a place are on average. A few sharp ones and grain everywhere can have the
same average, and squares tell them apart. Two coarser octaves see squares of 8 x 8 and 16 x 16
pixels.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.networks.images import averaged

SQUARE = 4  # pixels along a square's side
MAPS = 64  # cosines of an octave
# Parts along a side, each with its own means; from the finest octave on.
PLACES = 4, 2, 1
# At most so many squares along a side; larger images are read in strides.
POSITIONS = 32
# Length scales of the cosines, for pixels in [0, 1]: of what a square is beside its mean, from
# a few grey levels on, and of the mean.
GRAIN, LIGHT = (0.03, 1.0), 0.5


def num_features(image_size: int) -> int:
    """Length of an image's `texture_features`."""
    return MAPS * sum(places**2 for places in _octaves(image_size))


def texture_features(
    images: jax.Array, params: list[dict[str, jax.Array]]
) -> jax.Array:
    """Mean cosines of squares, beside those of a black one.

    Args:
        images: [B, H, W, C] float32 in [0, 1], H = W.
        params: of `init_texture`.

    Returns:
        [B, num_features] float32 in [-2, 2]; 0 for a black image.
    """
    octaves, all_places = [], _octaves(images.shape[1])
    for i, (places, known) in enumerate(zip(all_places, params, strict=True)):
        squares = _squares(averaged(images, 2**i))
        waves = _wave(squares @ known['weights'] + known['phases'])
        means = _means(waves, places) - _wave(known['phases'])
        octaves.append(means.reshape(len(images), -1))
    return jnp.concatenate(octaves, axis=1)


def _wave(turns: jax.Array) -> jax.Array:
    """Within .02 of the cosine of `turns` whole turns, by products alone.

    A cosine of every square is a call into the system's library on CPU, and would take longer
    than all else of a generator's step.
    """
    slope = 1 - 4 * jnp.abs(turns - jnp.round(turns))
    return slope * (1.5 - 0.5 * jnp.square(slope))


def _octaves(image_size: int) -> tuple[int, ...]:
    """The places of each octave that has room for a square."""
    room = [image_size // 2**i - SQUARE + 1 for i in range(len(PLACES))]
    return tuple(
        min(places, fits) for places, fits in zip(PLACES, room, strict=True) if fits > 0
    )


def _squares(images: jax.Array) -> jax.Array:
    """[B, H, W, C] to [B, positions, positions, 16 C]."""
    side = images.shape[1]
    stride = -(-(side - SQUARE + 1) // POSITIONS)
    last = side - SQUARE + 1
    # Pixels along a row lie side by side in memory: those first.
    rows = [images[:, :, i : i + last : stride] for i in range(SQUARE)]
    along = jnp.concatenate(rows, axis=-1)
    columns = [along[:, i : i + last : stride] for i in range(SQUARE)]
    return jnp.concatenate(columns, axis=-1)


def _means(waves: jax.Array, places: int) -> jax.Array:
    """[B, S, S, M] to [B, places, places, M]: over parts of nearly equal size."""
    # Slices, since the compiler makes one loop of a square's waves and their sum.
    edges = [len(part) for part in np.array_split(np.arange(waves.shape[1]), places)]
    parts = list(itertools.pairwise(np.cumsum([0, *edges])))
    means = [
        jnp.mean(waves[:, top:bottom, left:right], axis=(1, 2))
        for top, bottom in parts
        for left, right in parts
    ]
    return jnp.stack(means, axis=1).reshape(len(waves), places, places, -1)


def init_texture(
    key: jax.Array, image_size: int, channels: int
) -> list[dict[str, jax.Array]]:
    """Random directions at many length scales (Rahimi and Recht 2007): never trained.

    Args:
        key: public coins.
        image_size, channels: of the images.

    Returns:
        For each octave weights [16 C, MAPS] and phases [MAPS], in turns.
    """
    keys = jax.random.split(key, len(_octaves(image_size)))
    return [_init_octave(each, channels) for each in keys]


def _init_octave(key: jax.Array, channels: int) -> dict[str, jax.Array]:
    key_grain, key_scales, key_light, key_phases = jax.random.split(key, 4)
    pixels = SQUARE**2
    grain = jax.random.normal(key_grain, (pixels, channels, MAPS))
    grain -= jnp.mean(grain, axis=0)
    low, high = map(math.log, GRAIN)
    lengths = jnp.exp(jax.random.uniform(key_scales, (MAPS,), minval=low, maxval=high))
    light = jax.random.normal(key_light, (channels, MAPS)) / (LIGHT * pixels)
    weights = grain / (lengths * math.sqrt(pixels * channels)) + light / math.sqrt(
        channels
    )
    return {
        'weights': weights.reshape(pixels * channels, MAPS) / (2 * math.pi),
        'phases': jax.random.uniform(key_phases, (MAPS,)),
    }
