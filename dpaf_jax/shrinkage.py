"""Released values drawn towards what was expected, as far as they are noise.

Post-processing: what is drawn, how far and whither are of released and public values alone.
"""

import jax
import jax.numpy as jnp

TINY = 1e-12  # where there is neither noise nor a difference


def shrunk(values: jax.Array, expected: float, variance: jax.Array) -> jax.Array:
    """Empirical Bayes for a few noisy values of one kind (Efron and Morris 1973).

    Their own spread around what was expected, less the noise's, says how far the true
    values differ from it: not at all where noise explains everything, and wholly where
    there is no noise.

    Args:
        values: [A, ...] released, with independent noise.
        expected: the public guess that they are drawn to.
        variance: of each one's noise, broadcast against `values`.

    Returns:
        [A, ...], each between its value and `expected`.
    """
    spread = jnp.mean(jnp.square(values - expected) - variance)
    spread = jnp.maximum(spread, 0.0) + TINY
    return expected + (values - expected) * spread / (spread + variance)
