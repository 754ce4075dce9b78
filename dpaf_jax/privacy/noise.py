"""Gaussian noise, once per released sum, from keys that nothing else uses.

What floating point does to noise, and what is done about it:

- *The grid.* Float32 noise on a float32 sum lands on points that depend on the sum, so its
  last bits may tell neighbours apart (Mironov 2012). Here sum and noise are integers on one
  public grid (exact.py), whatever the data. The noise is the sum of `DRAWS` normals, each
  rounded to the grid. Up to less than 1e-40 that is distributed as one normal of the planned
  standard deviation plus independent roundings, rounded once (Poisson summation: the grid is
  at least 1000 times finer than the noise): post-processing of the Gaussian mechanism.
- *The tail.* jax.random.normal in float32 inverts a 23-bit uniform: its values lie in
  [-5.420, 5.221], 6e-7 apart near 0 and 0.1 to 0.3 apart at the ends, and their variance is
  1.1e-7 too small. The sum of four reaches 10.4 (beyond which a normal has a mass of 2e-25)
  and has no gaps on the grid. Its law can be computed exactly, from all 2^23 values, and is
  in tests/test_noise_law.py. Against a normal its chi-square distance is 1.4e-11 per
  coordinate; at noise_multiplier 1 it changes the privacy loss of a release by 1.5e-5 in root
  mean square, and delta(epsilon) by 2e-6 of itself at epsilon 1, 0.2 % at epsilon 4.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dpaf_jax.privacy.exact import ExactSum

DRAWS = 4


def gaussian(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal noise with the tail restored.

    Args:
        key: a typed PRNG key.
        shape: of the result.

    Returns:
        float32 array of independent standard normals, of reach 10.4 instead of 5.2.
    """
    draws = jax.random.normal(key, (DRAWS, *shape), jnp.float32)
    return jnp.sum(draws, axis=0) / math.sqrt(DRAWS)


def gaussian_units(
    key: jax.Array, shape: tuple[int, ...], std_units: float
) -> jax.Array:
    """Normal noise on the integers; see the module for its law.

    Args:
        key: a typed PRNG key.
        shape: of the result.
        std_units: standard deviation, at most 2^exact.NOISE_BITS.

    Returns:
        int32 array.
    """
    # Rounded up, and by 2^-23 more than the draws' variance falls short of 1.
    scale = np.float32(std_units / math.sqrt(DRAWS) * (1 + 2**-22))
    draws = jax.random.normal(key, (DRAWS, *shape), jnp.float32)
    return jnp.sum(jnp.round(draws * scale).astype(jnp.int32), axis=0)


def add_gaussian(sums: Any, key_data: jax.Array, noise_std: float) -> Any:
    """Adds independent Gaussian noise to every leaf of an already summed query.

    Guarantee: if one record moves the whole tree by at most s in l2 norm and noise_std
    is noise_multiplier * s, this is the Gaussian mechanism of that multiplier. Call it
    after the sum over devices, with the same key on each: then every replica holds the
    same noisy value, noised once. For an `ExactSum` it holds in exact arithmetic.

    Args:
        sums: over private examples: an `ExactSum`; or a tree of float32 where nothing is
            private.
        key_data: [2] uint32 of this mechanism and step alone; one draw covers all
            leaves, each coordinate from its own counter.
        noise_std: standard deviation of each coordinate; 0 adds nothing.

    Returns:
        The noisy tree of float32; from an `ExactSum` rounded to float32 afterwards.
    """
    if noise_std == 0:
        return sums
    key = jax.random.wrap_key_data(key_data)
    if isinstance(sums, ExactSum):
        shape, unflatten = ravel_pytree(sums.high)
        units = gaussian_units(key, shape.shape, noise_std / sums.spacing)
        return (sums + ExactSum.of(unflatten(units), sums.spacing)).rounded()
    vector, unflatten = ravel_pytree(sums)
    return unflatten(vector + noise_std * gaussian(key, vector.shape))
