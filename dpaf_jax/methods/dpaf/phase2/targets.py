"""What is read off noised aggregates: post-processing of released values alone.

A released mean row is a class's mean and noise. What is known beside it makes a better guess:
the public class sizes (`counts`), and the other classes' rows (`read_off`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.methods.dpaf.phase2.schedule import Schedule

TINY = 1e-20  # where there is neither noise nor a difference


class Targets(NamedTuple):
    """What the generator is to match.

    Attributes:
        means: [A, F] mean row of each aggregate, as far as released values say.
        errors: [A] how far noise leaves those from the true ones, but for that of counts: the
            root of the expected square, in units of a row's bound; 0 where nothing has been
            released.
        known: [A] bool, which have been released yet.
    """

    means: jax.Array
    errors: jax.Array
    known: jax.Array


def read_off(schedule: Schedule, pooled: jax.Array, num_pooled: jax.Array) -> Targets:
    """Mean rows, each tap's drawn to that of all aggregates as far as noise explains them.

    The mean of A rows has an A-th of the noise's variance. In a tap where the rows differ
    from it by little more than noise, it is nearly as good a guess of each, with less noise
    (Efron and Morris 1973: empirical Bayes; one variance of true differences for a tap).

    Args:
        schedule: public numbers.
        pooled: [A, F] sum of DPAGG's outputs of the same features.
        num_pooled: [A] how many those are.
    """
    known, number = num_pooled[:, None] > 0, jnp.maximum(num_pooled, 1)[:, None]
    shares = counts(schedule, pooled, num_pooled)
    means = pooled / number / shares
    noise = schedule.dpagg.noise_std / schedule.expected_counts / shares
    # The noise's variance in a column: [A, 1] of each mean row, and of their common mean.
    own = jnp.square(noise) / number + TINY
    weights = jnp.where(known, 1 / own, 0.0)
    common = 1 / jnp.maximum(jnp.sum(weights), TINY)
    centre = common * jnp.sum(weights * means, axis=0)
    gaps, unknown = means - centre, jnp.maximum(own - common, 0.0)
    shares_kept = [
        jnp.broadcast_to(kept_share(gaps[:, tap], unknown, known), gaps[:, tap].shape)
        for tap in schedule.taps.columns.values()
    ]
    kept = jnp.concatenate(shares_kept, axis=1)
    squares = jnp.sum(common + kept * unknown, axis=1)
    errors = jnp.where(known[:, 0], jnp.sqrt(squares) / schedule.taps.bound, 0.0)
    return Targets(centre + kept * gaps, errors, known[:, 0])


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
    known = num_pooled[:, None] > 0
    count = 1 + (noisy - 1) * kept_share(noisy - 1, variance, known)
    return jnp.maximum(count, 1 / schedule.expected_counts)


def _count_noise(schedule: Schedule) -> np.ndarray:
    """[A, 1] standard deviation of a noised count's, as a share of the expected one.

    A row's share for its count is the best for all columns together. That leaves a few
    records' count off by a third, and with it the length of their mean: so much that
    images alike, or none at all, come nearest to it.
    """
    (block,) = (b for b in schedule.taps.blocks if b.name == 'count')
    each: np.ndarray = schedule.dpagg.noise_std / schedule.expected_counts
    return each / schedule.taps.scale(block)


def kept_share(gaps: jax.Array, variance: jax.Array, known: jax.Array) -> jax.Array:
    """How much of noisy values' gaps to a guess is to be kept (Efron and Morris 1973).

    Their own spread around the guess, less the noise's, says how far the true values
    differ from it: not at all where noise explains everything, and wholly where there is
    no noise.

    Args:
        gaps: [A, ...] of released values of one kind, with independent noise.
        variance: of each one's noise, broadcast against `gaps`.
        known: bool, likewise: which are released yet. The others say nothing.

    Returns:
        A share in [0, 1] for each variance: what is left to multiply a gap with.
    """
    excess = jnp.where(known, jnp.square(gaps) - variance, 0.0)
    number = jnp.sum(jnp.broadcast_to(known, excess.shape))
    spread = jnp.maximum(jnp.sum(excess) / jnp.maximum(number, 1), 0.0) + TINY
    return spread / (spread + variance)
