"""A cosine by products alone.

On CPU, XLA calls the system's library for each cosine, one after the other. A polynomial runs
in vectors, sixteen times as fast, and its gradient is one, too.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

DEGREE = 6  # in the square of the turn: within 1e-7


def cosine(angles: jax.Array) -> jax.Array:
    """The cosine of float32 radians, within 1e-6 as long as angles themselves are.

    Angles of many turns lose what float32 cannot hold of a turn: 1e-7 of the angle.
    """
    turns = angles * np.float32(1 / (2 * np.pi))
    square = jnp.square(turns - jnp.round(turns))
    value = jnp.full_like(square, _COEFFICIENTS[-1])
    for coefficient in reversed(_COEFFICIENTS[:-1]):
        value = value * square + coefficient
    return value


def _coefficients() -> np.ndarray:
    """Of cos(2 pi sqrt(s)) for s in [0, 1 / 4], lowest degree first."""
    nearest = Chebyshev.interpolate(
        lambda square: np.cos(2 * np.pi * np.sqrt(square)), DEGREE, domain=[0, 0.25]
    )
    plain = nearest.convert(kind=Polynomial, domain=[-1, 1])
    return plain.coef.astype(np.float32)


_COEFFICIENTS = _coefficients()
