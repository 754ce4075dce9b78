"""Gaussian noise, once per released sum, from keys that nothing else uses.

What floating point does to noise, and what is done about it:

- *The grid.* Float32 noise on a float32 sum lands on points that depend on the sum, so its
  last bits may tell neighbours apart (Mironov 2012). Here sum and noise are integers on one
  public grid (grid.py), whatever the data. The noise is the sum of `DRAWS` normals, each
  rounded to the grid. Up to less than 1e-40 that is distributed as one normal of the planned
  standard deviation plus independent roundings, rounded once (Poisson summation: the grid is
  at least 1000 times finer than the noise): post-processing of the Gaussian mechanism.
- *The tail.* jax.random.normal in float32 inverts a 23-bit uniform: its values end at -5.420
  and 5.221 and are up to 0.3 apart there. Here a draw inverts 31 bits and a sign: its values
  end at +-6.338 and their sum at 12.6, beyond which a normal has a mass below 1e-35. The law
  of the sum is computed from all 2^31 magnitudes in tests/privacy/test_noise_law.py: its density
  differs from a normal's by 5e-8 of itself within 3 standard deviations, 5e-5 within 6.
- *The rest* of the difference, all in the tails, is paid for by `EXCESS`: with it
  delta(epsilon) of the noise lies below that of the Gaussian mechanism (same tests, for
  noise multipliers from 0.5 to 4, wherever delta is above 1e-9).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jax.flatten_util import ravel_pytree

from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.runtime import parallel

DRAWS = 4
EXCESS = (
    2**-12
)  # the standard deviation of private noise exceeds the plan's by this share


def _words(key_data: jax.Array, coordinates: jax.Array) -> jax.Array:
    """[DRAWS, n] random words of coordinates [n] uint32, by counters of their own."""
    shape = (DRAWS // 2, len(coordinates))
    high = jax.lax.broadcasted_iota(jnp.uint32, shape, 0)
    counters = jnp.stack([high, jnp.broadcast_to(coordinates, shape)])
    return threefry_2x32(key_data, counters).reshape(DRAWS, -1)


def _normals(words: jax.Array) -> jax.Array:
    tail = ((words >> 1).astype(jnp.float32) + 0.5) * 2**-32  # in (0, 1/2]
    magnitude = -jax.scipy.special.ndtri(tail)
    return jnp.where(words & 1, magnitude, -magnitude)


def gaussian(words: jax.Array) -> jax.Array:
    """[n] float32 standard normals, of reach 12.6, from [DRAWS, n] random words."""
    return jnp.sum(_normals(words), axis=0) / math.sqrt(DRAWS)


def gaussian_units(words: jax.Array, std_units: float | jax.Array) -> jax.Array:
    """Normal noise on the integers; see the module for its law.

    Args:
        words: [DRAWS, n] uint32, random.
        std_units: standard deviation, at most 2^exact.NOISE_BITS.

    Returns:
        [n] int32.
    """
    scale = jnp.float32(std_units / math.sqrt(DRAWS) * (1 + EXCESS))
    draws = jnp.round(_normals(words) * scale)
    return jnp.sum(draws.astype(jnp.int32), axis=0)


def noisy_total(sums: Any, key_data: jax.Array, noise_std: float | jax.Array) -> Any:
    """Releases a query that is dealt to the devices: their sum, with noise, in one message.

    Each device makes the noise of some coordinates and adds it to its own part of the sum, so
    the sum over devices has every coordinate's noise once. Only that sum is a release: the
    parts stay with the run.

    Guarantee: if one record moves the sum over devices by at most s in l2 norm and noise_std
    is noise_multiplier * s, this is the Gaussian mechanism of that multiplier. For an
    `ExactSum` it holds in exact arithmetic, and the result is that of `add_gaussian` after
    the sum, bit for bit, on any number of devices.

    Args:
        sums: over this device's private examples; inside a `pmapped` function. An
            `ExactSum`; or a tree of float32 where nothing is private.
        key_data: [2] uint32 of this mechanism and step alone, the same on all devices.
        noise_std: as for `add_gaussian`.

    Returns:
        The noisy tree of float32, the same on all devices.
    """
    if _no_noise(noise_std):
        return parallel.total(sums)
    noise = _noise(sums, key_data, noise_std, *parallel.place())
    return _rounded(parallel.total(jax.tree.map(jnp.add, sums, noise)))


def add_gaussian(sums: Any, key_data: jax.Array, noise_std: float | jax.Array) -> Any:
    """Adds independent Gaussian noise to a query that every device has whole.

    Guarantee: that of `noisy_total`. With the same sums and key on each device, every
    replica holds the same noisy value, noised once.

    Args:
        sums: over private examples: an `ExactSum`; or a tree of float32 where nothing is
            private.
        key_data: [2] uint32 of this mechanism and step alone; one draw covers all
            leaves, each coordinate from its own counter.
        noise_std: standard deviation of each coordinate; 0 adds nothing. A float32
            scalar where it differs from step to step: the 2^-24 that it may be off by are
            far less than `EXCESS`.

    Returns:
        The noisy tree of float32; from an `ExactSum` rounded to float32 afterwards.
    """
    if _no_noise(noise_std):
        return sums
    noise = _noise(sums, key_data, noise_std)
    return _rounded(jax.tree.map(jnp.add, sums, noise))


def _no_noise(noise_std: float | jax.Array) -> bool:
    return not isinstance(noise_std, jax.Array) and noise_std == 0


def _noise(
    sums: Any,
    key_data: jax.Array,
    noise_std: float | jax.Array,
    device: int | jax.Array = 0,
    num_devices: int = 1,
) -> Any:
    """This device's share of the noise, shaped like `sums`; that of others is 0."""
    exact = isinstance(sums, ExactSum)
    vector, unflatten = ravel_pytree(sums.high if exact else sums)
    share = -(-vector.size // num_devices)
    start = jnp.uint32(device * share)
    words = _words(key_data, start + jnp.arange(share, dtype=jnp.uint32))
    if exact:
        noise = gaussian_units(words, noise_std / sums.spacing)
    else:
        noise = noise_std * gaussian(words)
    if num_devices > 1:
        nothing = jnp.zeros(share * num_devices, noise.dtype)
        noise = jax.lax.dynamic_update_slice(nothing, noise, (start,))
    tree = unflatten(noise[: vector.size])
    return ExactSum.of(tree, sums.spacing) if exact else tree


def _rounded(sums: Any) -> Any:
    return sums.rounded() if isinstance(sums, ExactSum) else sums
