"""What a network that knows photographs sees in an image, place by place.

The network has learnt from public images alone (efficientnet.py), so its features are a fixed
function of an image. Their means say which edges, textures and parts of things images of a
class have where, the means of their squares how various images are. A generator that has both,
too, draws things instead of averages of pixels (Harder et al. 2023, DP-MEPF).
"""

import math

import jax
import jax.numpy as jnp

from dpaf_jax.networks.perceptual.efficientnet import STAGES, Params, stages

LEAST_SIDE, MOST_SIDE = 64, 128  # pixels of the network's input: below, it sees little
PLACES = 8  # a side: finer maps are averaged to so many


def num_features(image_size: int) -> int:
    """Columns of `perceptual_features`."""
    side = _side(image_size)
    return sum(width * min(PLACES, side // d) ** 2 for _, width, d in STAGES)


def perceptual_features(params: Params, images: jax.Array) -> jax.Array:
    """Maps of all stages, each scaled to the same norm.

    Args:
        params: of `efficientnet.trunk`.
        images: [B, H, H, 1 or 3] float32 in [-1, 1].

    Returns:
        [B, num_features(H)] float32 of norm at most 1.
    """
    batch, channels = len(images), images.shape[-1]
    side = _side(images.shape[1])
    shape = (batch, side, side, channels)
    maps = stages(params, jax.image.resize(images, shape, 'linear', antialias=True))
    flat = [_averaged(stage).reshape(batch, -1) for stage in maps]
    return jnp.concatenate([_scaled(x) for x in flat], axis=1) / math.sqrt(len(maps))


def with_squares(rows: jax.Array) -> jax.Array:
    """[B, F] features of norm at most 1, to [B, 2 F]: their squares beside them, likewise."""
    squares = _scaled(jnp.square(rows) * math.sqrt(rows.shape[1]))
    return jnp.concatenate([rows, squares], axis=1) / math.sqrt(2)


def _side(image_size: int) -> int:
    """That the network's input has: a power of two, so that maps divide into places."""
    return min(max(LEAST_SIDE, 2 ** round(math.log2(image_size))), MOST_SIDE)


def _averaged(maps: jax.Array) -> jax.Array:
    batch, side, _, width = maps.shape
    places = min(PLACES, side)
    squares = maps.reshape(batch, places, side // places, places, side // places, width)
    return jnp.mean(squares, axis=(2, 4))


def _scaled(rows: jax.Array) -> jax.Array:
    """To norm at most 1; 0 stays 0, and has a gradient."""
    square = jnp.sum(jnp.square(rows), axis=1, keepdims=True)
    return rows * jax.lax.rsqrt(square + 1e-6)
