"""Rows of features within a bound, which sets the noise of their sum."""

import jax
import jax.numpy as jnp


def unit_rows(rows: jax.Array) -> jax.Array:
    """Scales each row to norm at most 1; 0 stays 0, and has a gradient.

    Args:
        rows: [B, n] float32.
    """
    square = jnp.sum(jnp.square(rows), axis=1, keepdims=True)
    return rows * jax.lax.rsqrt(square + 1e-6)
