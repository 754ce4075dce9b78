"""Images bent a little and smoothly, at random: more variety than a generator has learnt.

A labeller looks at each image after that, so a label is never wrong because of it. Neither
private data nor anything learnt enters: public coins move pixels.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates

SMOOTHNESS = 1 / 7  # of the displacement, as a share of the side: a standard deviation


def warped(key: jax.Array, images: jax.Array, most: float) -> jax.Array:
    """Moves every pixel by a smooth random field, each image by its own.

    Args:
        key: public coins.
        images: [B, S, S, C] float32.
        most: of each image's strength, which is uniform from 0 on: the standard deviation
            of a pixel's displacement along either axis, as a share of the side. 0 returns
            the images as they are.

    Returns:
        [B, S, S, C], by bilinear interpolation; beyond a border lies what is at it.
    """
    if not most:
        return images
    side = images.shape[1]
    smooth = _smooth(side)
    key_strength, key_move = jax.random.split(key)
    normals = jax.random.normal(key_move, (len(images), 2, side, side))
    strength = jax.random.uniform(key_strength, (len(images), 1, 1, 1), maxval=most)
    moves = strength * side * jnp.einsum('ij,bajk,lk->bail', smooth, normals, smooth)
    places = jnp.stack(jnp.meshgrid(*2 * [jnp.arange(side)], indexing='ij')) + moves

    def bend(channel: jax.Array, places: jax.Array) -> jax.Array:
        return map_coordinates(channel, list(places), 1, 'nearest')

    channels = jax.vmap(bend, (2, None), 2)
    return jax.vmap(channels)(images, places)


def _smooth(side: int) -> np.ndarray:
    """[side, side] float32: rows of unit norm, so that normal coins stay of variance 1."""
    place = np.arange(side)
    rows = np.exp(-0.5 * ((place[:, None] - place) / (SMOOTHNESS * side)) ** 2)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows, np.float32)
