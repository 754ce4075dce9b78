"""Gaussian noise, once per released sum, from keys that nothing else uses."""

import math
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

Tree = TypeVar('Tree')

# jax.random.normal in float32 inverts a 23-bit uniform and never exceeds about 5.4
# standard deviations: over a long run that missing tail weighs more than delta. A sum
# of independent draws has the same law and reaches twice as far.
DRAWS = 4


def gaussian(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal noise with the tail restored.

    Args:
        key: a typed PRNG key.
        shape: of the result.

    Returns:
        float32 array of independent standard normals, of reach 10.8 instead of 5.4.
    """
    draws = jax.random.normal(key, (DRAWS, *shape), jnp.float32)
    return jnp.sum(draws, axis=0) / math.sqrt(DRAWS)


def add_gaussian(tree: Tree, key_data: jax.Array, noise_std: float) -> Tree:
    """Adds independent Gaussian noise to every leaf of an already summed query.

    Guarantee: if one record moves the whole tree by at most s in l2 norm and noise_std
    is noise_multiplier * s, this is the Gaussian mechanism of that multiplier. Call it
    after the sum over devices, with the same key on each: then every replica holds the
    same noisy value, noised once.

    Args:
        tree: sums over private examples, any shapes, float32.
        key_data: [2] uint32 of this mechanism and step alone; one draw covers all
            leaves, each coordinate from its own counter.
        noise_std: standard deviation of each coordinate; 0 adds nothing.

    Returns:
        The noisy tree.
    """
    if noise_std == 0:
        return tree
    vector, unflatten = ravel_pytree(tree)
    noise = gaussian(jax.random.wrap_key_data(key_data), vector.shape)
    return unflatten(vector + noise_std * noise)
