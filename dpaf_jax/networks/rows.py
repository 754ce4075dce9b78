"""Rows of features within a bound, which sets the noise of their sum."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp


def unit_rows(rows: jax.Array) -> jax.Array:
    """Scales each row to norm at most 1; 0 stays 0, and has a gradient.

    Args:
        rows: [B, n] float32.
    """
    square = jnp.sum(jnp.square(rows), axis=1, keepdims=True)
    return rows * jax.lax.rsqrt(square + 1e-6)


def side_by_side(parts: Sequence[jax.Array]) -> jax.Array:
    """[B, n] and [B, m] rows of norm at most 1 to [B, n + m], likewise; so with more parts."""
    return jnp.concatenate(parts, axis=1) / math.sqrt(len(parts))
