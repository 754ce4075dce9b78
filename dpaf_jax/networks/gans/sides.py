"""Halving and doubling the side of maps, odd sides included: 28 -> 14 -> 7 -> 4 and back."""

import jax
import jax.numpy as jnp


def halve(maps: jax.Array) -> jax.Array:
    """Means over squares of two: [B, s, s, c] to [B, ceil(s / 2), ceil(s / 2), c].

    An odd side repeats its last row, so that `halve(double(maps, side))` is `maps`.
    """
    odd = maps.shape[1] % 2
    maps = jnp.pad(maps, ((0, 0), (0, odd), (0, odd), (0, 0)), mode='edge')
    batch, side, _, channels = maps.shape
    squares = maps.reshape(batch, side // 2, 2, side // 2, 2, channels)
    return jnp.mean(squares, axis=(2, 4))


def double(maps: jax.Array, side: int) -> jax.Array:
    """Each pixel as a square of two, cropped to `side`."""
    doubled = jnp.repeat(jnp.repeat(maps, 2, axis=1), 2, axis=2)
    return doubled[:, :side, :side]
