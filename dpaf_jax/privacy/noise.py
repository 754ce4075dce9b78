"""Gaussian noise, once per released sum, from keys that nothing else uses.

What floating point does to noise, and what is done about it:

- *The grid.* Float32 noise on a float32 sum lands on points that depend on the sum, so its
  last bits may tell neighbours apart (Mironov 2012). Here sum and noise are integers on one
  public grid (grid.py), whatever the data. The noise is the sum of `DRAWS` normals, each
  rounded to the grid at random: up with the chance of what is cut off. A normal here is a
  float32, and where the grid is fine one of thirty lies half-way between two integers.
  Rounded to the nearest, ties to even, they would make even noise likelier than odd, and
  whether a sum is even is what one record decides.
- *The tail.* jax.random.normal in float32 inverts a 23-bit uniform: its values end at -5.420
  and 5.221 and are up to 0.3 apart there. Here a draw inverts up to 63 bits and a sign: its
  values end at +-9.155 and the sum of two at 12.9 standard deviations, beyond which a normal
  has a mass below 1e-37.
- *The law* of the sum is computed in tests/privacy/test_noise_law.py. Its density differs
  from a normal's by 1e-5 of itself within 3 standard deviations, 1e-4 within 9. At 10 it
  lacks 0.1 %, at 11 3 %, at 12 a quarter. A move of a few units, odd or even, is told no
  better than by the Gaussian mechanism: the chi squared of the two laws is smaller.
- *The rest* of the difference, all in the tails, is paid for by `EXCESS`. A record moves a
  sum by 1 / multiplier standard deviations, so the smaller the multiplier, the nearer it
  comes to the end. From 0.3 on, which is the least that a plan may have, delta(epsilon) of
  the noise lies below that of the Gaussian mechanism wherever the latter is above 1e-12; at
  any epsilon it exceeds it by less than `TAIL_DELTA` a release, which falls faster than the
  square of the move (same tests). At 0.15 neither holds.
- *The key* has 256 bits, and words come from ChaCha20 (chacha.py). Whoever sees noise and
  cannot try 2^128 keys is as far from it as from a law drawn by true coins.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from dpaf_jax.privacy import chacha
from dpaf_jax.privacy.chacha import BLOCK_WORDS
from dpaf_jax.privacy.grid import ExactSum, add
from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.runtime import parallel

DRAWS = 2
WORDS = 2 * DRAWS  # of each coordinate
COORDINATES = BLOCK_WORDS // WORDS  # of a block of random words
COINS = 9  # bits of a draw's second word that round it
# The standard deviation of private noise exceeds the plan's by this share.
EXCESS = 2**-12
# What the tail owes at most, of each release that a record takes part in; see the module.
TAIL_DELTA = 1e-15


def tail_delta(releases: float) -> float:
    """The delta that the noise's tail owes in all.

    Args:
        releases: in which a record is expected to take part: steps x sampling_prob, summed.
    """
    return TAIL_DELTA * releases


def _normals(words: jax.Array) -> jax.Array:
    """[...] float32 normals from [2, ...] words: a sign, a rank, a place within it.

    A rank of 2 or more leaves no room in a float32 for the last `COINS` bits of the place.
    """
    rank, above = words[0] >> 1, words[1] >> COINS
    first = (words[1].astype(jnp.float32) + 0.5) * 2**-32  # the nearest to 0
    place = (above.astype(jnp.float32) + 0.5) * 2.0 ** (COINS - 32)
    place = jnp.where(above == 0, first, place)  # in (0, 1)
    tail = (rank.astype(jnp.float32) + place) * 2**-32  # in (0, 1/2]
    magnitude = -jax.scipy.special.ndtri(tail)
    return jnp.where(words[0] & 1, magnitude, -magnitude)


def _units(words: jax.Array, scale: jax.Array) -> jax.Array:
    """[...] int32, a draw times `scale`, rounded up with the chance of what is cut off."""
    values = _normals(words) * scale
    below = jnp.floor(values)
    coin = ((words[1] & (2**COINS - 1)).astype(jnp.float32) + 0.5) * 2.0**-COINS
    return below.astype(jnp.int32) + (coin < values - below)


def gaussian(words: jax.Array) -> jax.Array:
    """[...] float32 standard normals, of reach 12.9, from [WORDS, ...] random words."""
    return (_normals(words[:2]) + _normals(words[2:])) / math.sqrt(DRAWS)


def gaussian_units(words: jax.Array, std_units: float | jax.Array) -> jax.Array:
    """Normal noise on the integers; see the module for its law.

    Args:
        words: [WORDS, ...] uint32, random.
        std_units: standard deviation, at most 2^grid.NOISE_BITS.

    Returns:
        [...] int32.
    """
    scale = jnp.float32(std_units / math.sqrt(DRAWS) * (1 + EXCESS))
    return _units(words[:2], scale) + _units(words[2:], scale)


def noisy_total(sums: Any, key_data: jax.Array, noise_std: float | jax.Array) -> Any:
    """Releases a query that is dealt to the devices: their sum, with noise, in one message.

    Each device makes the noise of some coordinates and adds it to its own part of the sum, so
    the sum over devices has every coordinate's noise once. Only that sum is a release: the
    parts stay with the run.

    Guarantee: if one record moves the sum over devices by at most s in l2 norm and noise_std
    is noise_multiplier * s, this is the Gaussian mechanism of that multiplier. For an
    `ExactSum` it holds in exact arithmetic, and the result is that of `add_gaussian` after
    the sum, on any number of devices: in all bits, where two programs round a draw alike.

    Args:
        sums: over this device's private examples; inside a `pmapped` function. An
            `ExactSum`; or a tree of float32 where nothing is private.
        key_data: [8] uint32 of this mechanism and step alone, the same on all devices.
        noise_std: as for `add_gaussian`.

    Returns:
        The noisy tree of float32, the same on all devices.
    """
    if _no_noise(noise_std):
        return parallel.total(sums)
    noise = _noise(sums, key_data, noise_std, *parallel.place())
    return _rounded(parallel.total(add(sums, noise)))


def noisy_mean(sums: Any, key_data: jax.Array, mechanism: Mechanism) -> Any:
    """`noisy_total` with the mechanism's noise, over the units that it expects.

    Guarantee: that of `noisy_total`; the divisor is public.

    Args:
        sums, key_data: as for `noisy_total`.
        mechanism: whose query this is.
    """
    noisy = noisy_total(sums, key_data, mechanism.noise_std)
    return jax.tree.map(lambda total: total / mechanism.expected_units, noisy)


def add_gaussian(sums: Any, key_data: jax.Array, noise_std: float | jax.Array) -> Any:
    """Adds independent Gaussian noise to a query that every device has whole.

    Guarantee: that of `noisy_total`. With the same sums and key on each device, every
    replica holds the same noisy value, noised once.

    Args:
        sums: over private examples: an `ExactSum`; or a tree of float32 where nothing is
            private.
        key_data: [8] uint32 of this mechanism and step alone; one draw covers all
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
    return _rounded(add(sums, noise))


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
    blocks = -(-vector.size // (COORDINATES * num_devices))  # of each device
    start = jnp.uint32(device * blocks)
    made = chacha.blocks(key_data, start + jnp.arange(blocks, dtype=jnp.uint32))
    words = made.reshape(WORDS, COORDINATES, blocks)
    if exact:
        noise = gaussian_units(words, noise_std / sums.spacing)
    else:
        noise = noise_std * gaussian(words)
    noise = noise.T.ravel()  # coordinates of a block side by side
    if num_devices > 1:
        nothing = jnp.zeros(noise.size * num_devices, noise.dtype)
        place = start * COORDINATES
        noise = jax.lax.dynamic_update_slice(nothing, noise, (place,))
    tree = unflatten(noise[: vector.size])
    return ExactSum.of(tree, sums.spacing) if exact else tree


def _rounded(sums: Any) -> Any:
    return sums.rounded() if isinstance(sums, ExactSum) else sums
