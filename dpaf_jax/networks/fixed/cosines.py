"""Random Fourier features of anything at many length scales (Rahimi and Recht 2007).

Class means of such features are a kernel mean embedding (Gretton et al. 2012): they say how
densely values of a class lie about each place.
"""

import math

import jax
import jax.numpy as jnp

from dpaf_jax.networks.fixed.cosine import cosine

Cosines = dict[str, jax.Array]


def cosines_of(values: jax.Array, known: Cosines) -> jax.Array:
    """[B, columns] in [-1, 1], of values [B, n] and what `init_cosines` has drawn.

    With 'weights' [m, n] in it, of values [B, m].
    """
    if 'weights' in known:
        values = values @ known['weights']
    return cosine(values @ known['directions'] + known['phases'])


def init_cosines(
    key: jax.Array, size: int, columns: int, scales: tuple[float, float]
) -> Cosines:
    """Directions and phases: never trained.

    Args:
        key: public coins.
        size: n.
        columns: how many cosines.
        scales: their length scales are log-uniform between these two.

    Returns:
        `directions` [n, columns] and `phases` [columns].
    """
    key_weights, key_scales, key_phases = jax.random.split(key, 3)
    low, high = map(math.log, scales)
    lengths = jax.random.uniform(key_scales, (columns,), minval=low, maxval=high)
    directions = jax.random.normal(key_weights, (size, columns))
    phases = jax.random.uniform(key_phases, (columns,), maxval=2 * math.pi)
    return {'directions': directions / jnp.exp(lengths), 'phases': phases}
