"""A batch in pieces: XLA's convolution keeps one core of a CPU busy, several keep several."""

import jax
import jax.numpy as jnp

PIECES = 4


def in_pieces(batch: jax.Array) -> list[jax.Array]:
    """[B, ...] in order, in at most `PIECES` parts of nearly one size; whole if not on CPU."""
    number = PIECES if jax.default_backend() == 'cpu' else 1
    return [piece for piece in jnp.array_split(batch, number) if len(piece)]
