"""What is read off noised aggregates: post-processing of released values alone."""

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.methods.dpaf.phase2.schedule import Schedule

TINY = 1e-12  # where there is neither noise nor a difference


def mean_rows(
    schedule: Schedule, pooled: jax.Array, num_pooled: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """[A, F] mean row of each aggregate as far as noised outputs say, and [A] whether.

    Args:
        schedule: public numbers.
        pooled: [A, F] sum of DPAGG's outputs of the same features.
        num_pooled: [A] how many those are.
    """
    means = pooled / jnp.maximum(num_pooled, 1)[:, None]
    return means / counts(schedule, pooled, num_pooled), num_pooled > 0


def counts(
    schedule: Schedule, pooled: jax.Array, num_pooled: jax.Array
) -> jax.Array | float:
    """[A, 1] records of each aggregate as shares of what was expected, or 1 if unknown.

    The noisy count came with the same vector; reals are at least one.
    """
    taps, number = schedule.taps, jnp.maximum(num_pooled, 1)[:, None]
    if 'count' not in taps:
        return 1.0
    noisy = taps.part(pooled / number, 'count')
    variance = jnp.square(_count_noise(schedule)) / number
    count = shrunk(noisy, 1.0, variance, num_pooled[:, None] > 0)
    return jnp.maximum(count, 1 / schedule.expected_counts)


def noise_lengths(
    schedule: Schedule, pooled: jax.Array, num_pooled: jax.Array
) -> jax.Array:
    """[A] of the noise in each of `mean_rows`, in units of a row's bound.

    Longer than in a sum of as many records as expected where there are fewer.
    """
    count = jnp.broadcast_to(
        counts(schedule, pooled, num_pooled), schedule.expected_counts.shape
    )
    return jnp.asarray(schedule.noise_lengths) / count[:, 0]


def _count_noise(schedule: Schedule) -> np.ndarray:
    """[A, 1] standard deviation of a noised count's, as a share of the expected one.

    A row's share for its count is the best for all columns together. That leaves a few
    records' count off by a third, and with it the length of their mean: so much that
    images alike, or none at all, come nearest to it.
    """
    (block,) = (b for b in schedule.taps.blocks if b.name == 'count')
    each: np.ndarray = schedule.dpagg.noise_std / schedule.expected_counts
    return each / schedule.taps.scale(block)


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
