"""Released values drawn towards what was expected, as far as they are noise.

Post-processing: what is drawn, how far and whither are of released and public values alone.
"""

import jax
import jax.numpy as jnp

TINY = 1e-12  # where there is neither noise nor a difference


def shrunk(
    values: jax.Array, expected: float, variance: jax.Array, known: jax.Array
) -> jax.Array:
    """Empirical Bayes for a few noisy values of one kind (Efron and Morris 1973).

    Their own spread around what was expected, less the noise's, says how far the true
    values differ from it: not at all where noise explains everything, and wholly where
    there is no noise.

    Args:
        values: [A, ...] released, with independent noise.
        expected: the public guess that they are drawn to.
        variance: of each one's noise, broadcast against `values`.
        known: bool, likewise: which are released yet. The others say nothing.

    Returns:
        [A, ...], each between its value and `expected`.
    """
    excess = jnp.where(known, jnp.square(values - expected) - variance, 0.0)
    number = jnp.sum(jnp.broadcast_to(known, excess.shape))
    spread = jnp.maximum(jnp.sum(excess) / jnp.maximum(number, 1), 0.0) + TINY
    return expected + (values - expected) * spread / (spread + variance)
