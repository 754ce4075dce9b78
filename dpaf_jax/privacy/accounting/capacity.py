"""How many slots a padded draw needs, and what it costs that draws may exceed them."""

import bisect
import dataclasses

from scipy import stats

from dpaf_jax.privacy.plan import Mechanism


def overflow_probability(
    num_examples: int, prob: float, capacity: int, shared_by: int = 1
) -> float:
    """P[Bin(s(N - 1), prob) > capacity - s]: the others leave a record less than s slots.

    While they do not, one record finds room in each of the s draws that share the slots,
    and the padded draws are exact Poisson draws. The event depends on coins of the other
    records alone, so it has the same probability on neighbouring data sets and is charged
    once, to delta.

    Args:
        num_examples: N.
        prob: of one record to be drawn.
        capacity: slots.
        shared_by: s, draws that share them.

    Example:
        >>> f'{overflow_probability(60000, 24 / 60000, capacity=66):.1e}'
        '1.3e-12'
    """
    others = shared_by * (num_examples - 1)
    return float(stats.binom.sf(capacity - shared_by, others, prob))


def capacity_for(
    num_examples: int, prob: float, tail: float, shared_by: int = 1
) -> int:
    """The smallest capacity whose overflow probability is at most `tail`.

    Args:
        num_examples: N; also the capacity of one draw for prob = 1.
        prob: of one record to be drawn.
        tail: of one overflow.
        shared_by: draws that share the slots.

    Example:
        >>> capacity_for(60000, 24 / 60000, tail=1e-8)
        57
    """
    most = shared_by * num_examples
    if prob >= 1 or tail <= 0:
        return most
    # By the tail itself: SciPy's inverse of it breaks down below 1e-16.
    capacities = range(shared_by, most)
    return capacities.start + bisect.bisect_left(
        capacities,
        True,
        key=lambda c: overflow_probability(num_examples, prob, c, shared_by) <= tail,
    )


def fit_capacity(
    mechanism: Mechanism, num_examples: int, overflow_delta: float
) -> Mechanism:
    """Chooses the capacity so that all draws together overflow with `overflow_delta`."""
    prob = mechanism.sampling_prob / mechanism.num_groups
    draws = mechanism.steps * mechanism.num_groups
    tail = overflow_delta / draws
    capacity = capacity_for(num_examples, prob, tail, mechanism.shared_by)
    return dataclasses.replace(mechanism, capacity=capacity)


def overflow_delta(mechanism: Mechanism, num_examples: int) -> float:
    """The delta that a mechanism's capacity costs over the whole run.

    Slots that several draws share are counted for each of the draws: a record has a draw in
    no more arrays than it has draws.
    """
    m = mechanism
    prob = m.sampling_prob / m.num_groups
    once = overflow_probability(num_examples, prob, m.capacity, m.shared_by)
    return m.steps * m.num_groups * once
