"""Images bent a little and smoothly, at random: more variety than a generator has learnt.

A labeller looks at each image after that, so a label is never wrong because of it. Neither
private data nor anything learnt enters: public coins move pixels.
"""

import jax
import jax.numpy as jnp
import numpy as np

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
        [B, S, S, C], each within its image's range, by cubic interpolation: a bilinear one
        would blur. Beyond a border lies what is at it.
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
    return jax.vmap(_interpolated)(images, places)


def _interpolated(image: jax.Array, places: jax.Array) -> jax.Array:
    """Values of an image [S, S, C] at places [2, S, S]: cubic convolution (Keys 1981)."""
    side, _, channels = image.shape
    places = jnp.clip(places, 0, side - 1)
    first = jnp.floor(places).astype(jnp.int32)
    rows, columns = jnp.moveaxis(_cubic_weights(places - first), 1, 0)
    padded = jnp.pad(image, ((1, 2), (1, 2), (0, 0)), 'edge')

    def around(row: jax.Array, column: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice(padded, (row, column, 0), (4, 4, channels))

    # In one piece each: a pixel at a time takes several times as long.
    patches = jax.vmap(jax.vmap(around))(*first)
    values = jnp.einsum('ixy,jxy,xyijc->xyc', rows, columns, patches)
    return jnp.clip(values, jnp.min(image), jnp.max(image))


def _cubic_weights(t: jax.Array) -> jax.Array:
    """[4, ...] of the pixels at -1, 0, 1 and 2, for a place at t in [0, 1)."""
    return jnp.stack(
        [
            t * (-0.5 + t * (1 - 0.5 * t)),
            1 + t * t * (-2.5 + 1.5 * t),
            t * (0.5 + t * (2 - 1.5 * t)),
            t * t * (-0.5 + 0.5 * t),
        ]
    )


def _smooth(side: int) -> np.ndarray:
    """[side, side] float32: rows of unit norm, so that normal coins stay of variance 1."""
    place = np.arange(side)
    rows = np.exp(-0.5 * ((place[:, None] - place) / (SMOOTHNESS * side)) ** 2)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows, np.float32)
