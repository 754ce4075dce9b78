"""Could chance have done that? A permutation test over the real records.

An attack looks at a release in several ways, and each look ends in a number that is large
where the release betrays its training records. If it betrays nothing, training and
held-out records differ by chance alone: each way of calling as many of them 'training' is
as likely as the true one, whatever the synthetic images are and however often they hit the
same record. So the test calls others 'training', again and again, and asks how often the
best look is as good as the true one. It is exact at any number of records and counts that
several looks were taken (Westfall and Young 1993, single-step max T): with nothing to
find it is wrong in at most `ALARM` of all runs.

It holds if the held-out records are a random part of all records. A test split that
somebody chose, or records that belong together (several images of a person), are
something else than chance.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

PERMUTATIONS = 1999  # so that p-values are multiples of 1/2000
ALARM = 0.05  # chance of a find where there is nothing
CELLS = 2**24  # labels in memory at once
ROUNDING = 1e-9  # two sums of the same numbers may differ by so much


class Look(NamedTuple):
    """What one look saw.

    Attributes:
        value: the weights of the training records, summed.
        expected: the same by chance, on average.
        limit: what chance exceeds in any of the looks with probability `ALARM`.
        z: how far the value is from chance, in standard deviations.
    """

    value: float
    expected: float
    limit: float
    z: float


class Findings(NamedTuple):
    """All looks, and what they show together.

    Attributes:
        looks: by name.
        p_value: of the best look, counted for all of them.
    """

    looks: dict[str, Look]
    p_value: float

    @property
    def found(self) -> bool:
        """Whether chance is ruled out."""
        return self.p_value <= ALARM

    @property
    def best(self) -> str:
        """The name of the look that is furthest from chance."""
        return max(self.looks, key=lambda name: self.looks[name].z)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        looks = {name: look._asdict() for name, look in self.looks.items()}
        return {
            'found': self.found, 'p_value': self.p_value, 'best_look': self.best,
            'looks': looks,
        }  # fmt: skip


def permutation_test(
    weights: Mapping[str, np.ndarray], is_training: np.ndarray, seed: int = 0
) -> Findings:
    """Tests whether training records have more of any weight than chance gives them.

    Args:
        weights: by look, [n] float of each real record; made without knowing which of
            them are training records.
        is_training: [n] bool, with both kinds among them.
        seed: of the permutations.
    """
    rng = np.random.default_rng(seed)
    matrix = np.stack(list(weights.values()), axis=1).astype(float)  # [n, looks]
    number, share = len(is_training), float(np.mean(is_training))
    mean = share * matrix.sum(axis=0)
    # Of a sum over a sample without replacement.
    squares = np.square(matrix - matrix.mean(axis=0)).sum(axis=0)
    spread = np.sqrt(share * (1 - share) * squares * number / (number - 1))

    def z_of(sums: np.ndarray) -> np.ndarray:
        blank = np.zeros_like(sums)  # a look that is the same for all shows nothing
        return np.divide(sums - mean, spread, out=blank, where=spread > ROUNDING * mean)

    value = is_training @ matrix
    z = z_of(value)
    best = []
    rows = max(1, CELLS // number)
    for start in range(0, PERMUTATIONS, rows):
        labels = np.tile(is_training, (min(rows, PERMUTATIONS - start), 1))
        best.append(z_of(rng.permuted(labels, axis=1) @ matrix).max(axis=1))
    by_chance = np.sort(np.concatenate(best))
    as_good = int(np.sum(by_chance >= z.max() - ROUNDING))
    limit = by_chance[int(np.ceil((1 - ALARM) * (PERMUTATIONS + 1))) - 1]
    rows_of = zip(value, mean, mean + limit * spread, z, strict=True)
    looks = (Look(*map(float, row)) for row in rows_of)
    found = dict(zip(weights, looks, strict=True))
    return Findings(found, (1 + as_good) / (PERMUTATIONS + 1))


def tops(number: int) -> list[int]:
    """How many of the surest hits are looked at by themselves: 16, 32, ... below all."""
    return [2**i for i in range(4, 32) if 2**i < number]


CAVEAT = (
    'Held-out records of another kind than the training records (a test split that is '
    'not random) would show the same.'
)


def nothing(what: str, chance: dict[str, Any]) -> str:
    """The verdict where chance explains all."""
    return (
        f'Nothing found: {what} (p = {chance["p_value"]:.4f}). '
        'That proves nothing: it is what was tried without success.'
    )


def something(what: str, chance: dict[str, Any], permitted: str) -> str:
    """The verdict where it does not."""
    best = chance['looks'][chance['best_look']]
    return (
        f'FOUND: {what} ({chance["best_look"]}: {best["value"]:.4f}, by chance at most '
        f'{best["limit"]:.4f}; p = {chance["p_value"]:.4f}). {permitted} {CAVEAT}'
    )
