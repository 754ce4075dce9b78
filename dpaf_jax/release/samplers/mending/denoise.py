"""Grain taken off a generator's images: a mean of pixels that look alike and lie near.

A generator that was matched to mean features has grain which no feature forbids. Neither
private data nor anything learnt enters: each image is a function of itself alone.
"""

import jax
import jax.numpy as jnp

REACH = 4  # pixels along either axis, of those that are looked at
# Share of a neighbour along an axis in how a pixel looks: exp(-2) / (1 + 2 exp(-2)).
BESIDE = 0.1065


def nonlocal_means(images: jax.Array, strength: float) -> jax.Array:
    """Each pixel becomes a mean of those about it, weighed by how alike their surroundings.

    Non-local means (Buades, Coll and Morel 2005, section 3): weights are exp(-d² / h²), where
    d² is the mean squared difference of two squares of 3 x 3 pixels, less what noise of
    variance h² / 4 makes of it. Edges stay, since there is nothing like across them.

    Args:
        images: [B, H, W, C] float32.
        strength: h, in the images' own units. 0 returns the images as they are.

    Returns:
        [B, H, W, C], each within its image's range. Beyond a border lies its mirror image.
    """
    if not strength:
        return images
    pixels = jnp.moveaxis(images, 0, -1)  # images side by side in memory: half the time
    height, width, *rest = pixels.shape
    around = [(REACH + 1, REACH + 1)] * 2 + [(0, 0)] * 2
    padded = jnp.pad(pixels, around, 'reflect')

    def moved(row: jax.Array | int, column: jax.Array | int) -> jax.Array:
        """With a border of one pixel, for the squares."""
        start, size = (row, column, 0, 0), (height + 2, width + 2, *rest)
        return jax.lax.dynamic_slice(padded, start, size)

    here = moved(REACH, REACH)

    def add(sums: tuple[jax.Array, jax.Array], offset: jax.Array) -> tuple:
        total, weights = sums
        there = moved(*offset)
        distance = _of_squares(jnp.mean(jnp.square(there - here), axis=2))
        weight = jnp.exp(-jnp.maximum(distance / strength**2 - 0.5, 0))[:, :, None]
        return (total + weight * there[1:-1, 1:-1], weights + weight), None

    steps = jnp.arange(2 * REACH + 1)
    offsets = jnp.stack(jnp.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    nothing = jnp.zeros_like(pixels), jnp.zeros_like(pixels[:, :, :1])
    (total, weights), _ = jax.lax.scan(add, nothing, offsets)
    return jnp.moveaxis(total / weights, -1, 0)


def _of_squares(values: jax.Array) -> jax.Array:
    """Weighted means [H, W, B] over the 3 x 3 about each of [H + 2, W + 2, B] values."""
    middle = 1 - 2 * BESIDE
    columns = BESIDE * (values[:-2] + values[2:]) + middle * values[1:-1]
    return BESIDE * (columns[:, :-2] + columns[:, 2:]) + middle * columns[:, 1:-1]
