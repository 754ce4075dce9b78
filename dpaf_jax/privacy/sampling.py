"""Poisson draws, padded to a fixed capacity, from coins that nobody else uses.

Guarantee: in each draw every record takes part independently with probability
`sampling_prob`; draws of different mechanisms and steps are independent. Should a draw
exceed its capacity it is cut; the plan pays for that event out of delta
(`accounting.overflow_probability`).
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import Mechanism

USUALLY = 4.0  # standard deviations above its mean that a draw rarely exceeds


@dataclasses.dataclass(frozen=True)
class Draw:
    """Which records take part in one step; private, never logged.

    Attributes:
        indices: [units, members] int32 into the data set; 0 where padded. A unit is
            what is clipped: one record (members = 1) or a group.
        is_padding_example: [units, members] bool.
    """

    indices: np.ndarray
    is_padding_example: np.ndarray


def poisson_draw(
    mechanism: Mechanism, eligible: np.ndarray | int, keys: RunKeys, step: int
) -> Draw:
    """Draws the records of one step of `mechanism`.

    Args:
        mechanism: gives sampling_prob, capacity and num_groups.
        eligible: the number of records that are not empty (private), or the indices of
            those whose turn it is by a public schedule over classes.
        keys: of the run; the coins depend on the mechanism's name and the step alone.
        step: 0-based.

    Returns:
        A `Draw` of capacity x 1, or of num_groups x capacity where the mechanism has
        groups: every record that is drawn picks its group by its own coin.

    Example:
        >>> from dpaf_jax.privacy.plan import Mechanism
        >>> conv1 = Mechanism('conv1', 'sum', 0.25, 1.0, 10, 5.0, 16)
        >>> keys = RunKeys(entropy=b'for this example', fingerprint='00')
        >>> draw = poisson_draw(conv1, 20, keys, step=0)
        >>> draw.indices.shape  # always the capacity, however many were drawn
        (16, 1)
        >>> again = poisson_draw(conv1, 20, keys, step=0)  # a resumed run repeats its coins
        >>> bool(np.all(draw.indices == again.indices))
        True
    """
    coins = keys.coins(mechanism.name, step)
    count = eligible if isinstance(eligible, int) else len(eligible)
    # Independent coins of one bias are a binomial count and a uniform subset of it.
    size = coins.binomial(count, mechanism.sampling_prob)
    chosen = coins.choice(count, size=size, replace=False, shuffle=False)
    if not isinstance(eligible, int):
        chosen = eligible[chosen]
    if mechanism.num_groups == 1:
        return _pad([chosen], mechanism.capacity, by_unit=True)
    group = coins.integers(mechanism.num_groups, size=size)
    parts = [chosen[group == g] for g in range(mechanism.num_groups)]
    return _pad(parts, mechanism.capacity, by_unit=False)


def _pad(parts: list[np.ndarray], capacity: int, *, by_unit: bool) -> Draw:
    indices = np.zeros((len(parts), capacity), np.int32)
    is_padding = np.ones((len(parts), capacity), bool)
    for row, part in enumerate(parts):
        kept = part[:capacity]
        indices[row, : len(kept)] = kept
        is_padding[row, : len(kept)] = False
    if by_unit:
        return Draw(indices.T, is_padding.T)
    return Draw(indices, is_padding)


def fitted(draws: Sequence[Draw], mechanism: Mechanism) -> list[Draw]:
    """Drops slots at the end that are empty in all draws of a window.

    Capacity is for the worst draw of a whole run. What is computed has one of two lengths,
    the usual one or the whole capacity, so there are two programs at most. Records stay
    where they are: no output depends on the length, but the time of a step does.
    """
    axis = 0 if mechanism.num_groups == 1 else 1
    usual = _usual_slots(mechanism.expected_batch_size / mechanism.num_groups)

    def cut(array: np.ndarray, kept: slice) -> np.ndarray:
        return array[kept] if axis == 0 else array[:, kept]

    if not all(cut(d.is_padding_example, slice(usual, None)).all() for d in draws):
        return list(draws)
    first = slice(0, usual)
    return [
        Draw(cut(d.indices, first), cut(d.is_padding_example, first)) for d in draws
    ]


def packed(draws: Sequence[Draw], mechanism: Mechanism) -> tuple[Draw, np.ndarray]:
    """The draws of a window in one, for a query that all of them ask of the same features.

    Args:
        draws: of single records, all of one length.
        mechanism: theirs.

    Returns:
        A draw of P x 1, records in front, and [P] int32, which of `draws` each slot is of.
        P has one of two values, as in `fitted`.
    """
    taken = [d.indices[~d.is_padding_example] for d in draws]
    step = np.repeat(np.arange(len(draws), dtype=np.int32), [len(t) for t in taken])
    room = sum(len(d.indices) for d in draws)
    usual = min(_usual_slots(mechanism.expected_batch_size * len(draws)), room)
    slots = usual if len(step) <= usual else room
    owner = np.pad(step, (0, slots - len(step)))
    return _pad([np.concatenate(taken)], slots, by_unit=True), owner


def _usual_slots(expected: float) -> int:
    return math.ceil(expected + USUALLY * math.sqrt(expected))


def shuffled_batches(
    num_examples: int, batch_size: int, name: str, keys: RunKeys, step: int
) -> Draw:
    """The `step`-th batch of shuffled epochs: what the papers run, not certified.

    Returns:
        A `Draw` of batch_size x 1 without padding; an epoch's last, odd batch is left
        out, as usual.
    """
    per_epoch = num_examples // batch_size
    order = keys.coins(f'{name}/epoch', step // per_epoch).permutation(num_examples)
    start = (step % per_epoch) * batch_size
    indices = order[start : start + batch_size].astype(np.int32)[:, None]
    return Draw(indices, np.zeros(indices.shape, bool))
