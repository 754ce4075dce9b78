"""Poisson draws, padded to a fixed capacity, from coins that nobody else uses.

Guarantee: in each draw every record takes part independently with probability
`sampling_prob`; draws of different mechanisms and steps are independent. Should a draw
exceed its capacity it is cut; the plan pays for that event out of delta
(`accounting.overflow_probability`).

No shape, hence no program, depends on how many records were drawn or how many there are: all
slots are computed, empty or not (but for DPBA-WGAN's models per label, privacy.md). A record's
slot is a coin too. Where the others lie, in law, is the same with the record and without it:
without it its slot is empty.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import stats

from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import Mechanism

INVERTED = 30  # expected, below which NumPy inverts the distribution as far as it goes


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

    def padded(self, units: int) -> 'Draw':
        """The same records in `units` units, not fewer than there are: others are empty."""
        short = [(0, units - len(self.indices)), (0, 0)]
        return Draw(
            np.pad(self.indices, short),
            np.pad(self.is_padding_example, short, constant_values=True),
        )


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
        groups: every record that is drawn picks its group by its own coin. Within its
        group it has any of the slots.

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
    rng = keys.rng(mechanism.name, step)
    count = eligible if isinstance(eligible, int) else len(eligible)
    # Independent coins of one bias are a binomial count and a uniform subset of it.
    size = binomial(rng, count, mechanism.sampling_prob)
    chosen = rng.choice(count, size=size, replace=False, shuffle=False)
    if not isinstance(eligible, int):
        chosen = eligible[chosen]
    groups, capacity = mechanism.num_groups, mechanism.capacity
    group = rng.integers(groups, size=size)
    parts = [chosen[group == g] for g in range(groups)]
    slots = [rng.permutation(capacity)[: len(part)] for part in parts]
    indices, is_padding = _place(parts, slots, capacity)
    return Draw(indices, is_padding) if groups > 1 else Draw(indices.T, is_padding.T)


def binomial(rng: np.random.Generator, count: int, prob: float) -> int:
    """How many of `count` independent coins of bias `prob` fall on their side.

    Where few do, or few do not, NumPy draws again whatever lies ten standard deviations out,
    which no delta pays for. There the distribution is inverted here: nothing is missing but
    what is rarer than a float64 below 1 can tell, 1e-16.

    Example:
        >>> binomial(np.random.default_rng(0), 60_000, 24 / 60_000)
        26
    """
    if min(prob, 1 - prob) * count >= INVERTED:
        return int(rng.binomial(count, prob))
    uniform = max(rng.random(), 2**-53)  # the quantile of 0 is -1
    return int(stats.binom.ppf(uniform, count, prob))


def packed(
    draws: Sequence[Draw], slots: int, rng: np.random.Generator
) -> tuple[Draw, np.ndarray]:
    """The draws of a window in one, for a query that all of them ask of the same features.

    Args:
        draws: of single records.
        slots: P, public; what exceeds it is cut.
        rng: for the slots; nobody else's.

    Returns:
        A draw of P x 1, and [P] int32, which of `draws` each slot is of.
    """
    taken = [d.indices[~d.is_padding_example] for d in draws]
    step = np.repeat(np.arange(len(draws), dtype=np.int32), [len(t) for t in taken])
    where = rng.permutation(slots)[: len(step)]
    segment_ids = np.zeros(slots, np.int32)
    segment_ids[where] = step[:slots]
    (indices,), (is_padding,) = _place([np.concatenate(taken)], [where], slots)
    return Draw(indices[:, None], is_padding[:, None]), segment_ids


def _place(
    parts: list[np.ndarray], slots: list[np.ndarray], capacity: int
) -> tuple[np.ndarray, np.ndarray]:
    """[parts, capacity] indices and padding: records in their slots, as many as fit."""
    indices = np.zeros((len(parts), capacity), np.int32)
    is_padding = np.ones((len(parts), capacity), bool)
    for row, (part, where) in enumerate(zip(parts, slots, strict=True)):
        indices[row, where] = part[:capacity]
        is_padding[row, where] = False
    return indices, is_padding


def shuffled_batches(
    num_examples: int, batch_size: int, name: str, keys: RunKeys, step: int
) -> Draw:
    """The `step`-th batch of shuffled epochs: what the papers run, not certified.

    Returns:
        A `Draw` of batch_size x 1 without padding; an epoch's last, odd batch is left
        out, as usual. Where fewer are there, a batch is all of them.
    """
    batch_size = min(batch_size, num_examples)
    per_epoch = num_examples // batch_size
    order = keys.rng(f'{name}/epoch', step // per_epoch).permutation(num_examples)
    start = (step % per_epoch) * batch_size
    indices = order[start : start + batch_size].astype(np.int32)[:, None]
    return Draw(indices, np.zeros(indices.shape, bool))
