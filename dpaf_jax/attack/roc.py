"""How well scores tell members from non-members, and how well a guarantee lets them.

Every limit here holds for one release, at any number of records, whatever law the scores
follow.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special
from sklearn.metrics import roc_auc_score, roc_curve

from dpaf_jax.runtime.rates import clopper_pearson

RATES = (0.01, 0.001)  # false positive rates at which the true positive rate is stated
LEAST = 10  # non-members above a threshold, below which its rate is not measurable
ROUNDING = 1e-9  # a product of floats may end just below a whole number


class Interval(NamedTuple):
    """A figure and the ends of its confidence interval."""

    value: float
    low: float
    high: float


class Point(NamedTuple):
    """A threshold's two rates.

    Attributes:
        fpr: false positive rate.
        tpr: true positive rate.
    """

    fpr: Interval
    tpr: Interval

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {'fpr': self.fpr._asdict(), 'tpr': self.tpr._asdict()}


def rate(count: int, number: int, alpha: float) -> Interval:
    """The share of `count` in `number`, and its limits at `alpha`."""
    low, high = clopper_pearson(count, number, alpha)
    return Interval(count / number, float(low), float(high))


def measurable(number: int) -> dict[float, int]:
    """{FPR: non-members above its threshold}, rising, of rates that `number` can show.

    The least rate that can be measured, and those of `RATES` that can be.
    """
    counts = {math.floor(fpr * number + ROUNDING): fpr for fpr in RATES}
    points = {k: fpr for k, fpr in counts.items() if k >= LEAST}
    points.setdefault(LEAST, LEAST / number)
    return {points[k]: k for k in sorted(points)}


@dataclasses.dataclass(frozen=True)
class Roc:
    """Members told from non-members by a threshold on a score.

    Attributes:
        members: [m] scores.
        non_members: [n] scores.
    """

    members: np.ndarray
    non_members: np.ndarray

    @functools.cached_property
    def _both(self) -> tuple[np.ndarray, np.ndarray]:
        scores = np.concatenate([self.members, self.non_members])
        return np.arange(len(scores)) < len(self.members), scores

    def auc(self, alpha: float) -> Interval:
        """Chance that a member scores above a non-member; ties count half.

        The interval is Hoeffding's: the figure is a mean over arrangements into
        min(m, n) independent pairs (1963, section 5b), so its tails are at most
        Chernoff's for as many tosses of a coin.
        """
        value = float(roc_auc_score(*self._both))
        pairs = min(len(self.members), len(self.non_members))
        most = math.log(2 / alpha) / pairs

        def excess(chance: float) -> float:
            far = special.rel_entr(value, chance)
            return float(far + special.rel_entr(1 - value, 1 - chance) - most)

        low = optimize.brentq(excess, 1e-300, value) if excess(1e-300) > 0 else 0.0
        above = 1 - 1e-16
        high = optimize.brentq(excess, value, above) if excess(above) > 0 else 1.0
        return Interval(value, float(low), float(high))

    def point(self, count: int, alpha: float) -> Point:
        """The lowest threshold with at most `count` non-members above it.

        Clopper-Pearson on either rate. It stays exact although the threshold is a
        non-member's score: such a score cuts off a Beta(count + 1, n - count) share of
        non-members (less, with ties), which is what the interval's upper end is made of.

        Args:
            count: below the number of non-members.
            alpha: of either interval.
        """
        threshold = -np.partition(-self.non_members, count)[count]
        above = int(np.sum(self.members > threshold))
        return Point(
            rate(count, len(self.non_members), alpha),
            rate(above, len(self.members), alpha),
        )

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """(FPR, TPR), rising."""
        fpr, tpr, _ = roc_curve(*self._both)
        return fpr, tpr

    def band(self, grid: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest TPR at each FPR of `grid`, as sure as `point`.

        A threshold's two rates are both uncertain. TPR rises with FPR, so it is at least
        that of the nearest threshold whose FPR is surely smaller, and at most that of the
        nearest whose FPR is surely larger. Scores equal to a threshold lie below it for
        the one, above it for the other.
        """
        m, n = len(self.members), len(self.non_members)
        counts = np.unique(np.geomspace(LEAST, n - 1, 60).round().astype(int))
        members, others = np.sort(self.members), -np.sort(-self.non_members)
        left, right = clopper_pearson(counts, n, alpha)
        above = m - np.searchsorted(members, others[counts], 'right')
        upto = m - np.searchsorted(members, others[counts - 1])
        least, _ = clopper_pearson(above, m, alpha)
        _, most = clopper_pearson(upto, m, alpha)
        low = np.append(0.0, least)[np.searchsorted(right, grid, 'right')]
        high = np.append(most, 1.0)[np.searchsorted(left, grid)]
        return low, high


def permitted_tpr(fpr: np.ndarray | float, epsilon: float, delta: float) -> np.ndarray:
    """Largest TPR at an FPR that (epsilon, delta) permits for one record.

    Kairouz, Oh and Viswanath 2015, Theorem 2.1.
    """
    rate = np.asarray(fpr, float)
    # exp of a large epsilon overflows, where the bound is 1 anyway.
    grown = np.exp(np.minimum(epsilon + np.log(np.maximum(rate, 1e-300)), 1.0))
    left = np.where(rate > 0, grown, 0.0) + delta
    right = 1 - math.exp(-epsilon) * np.maximum(1 - delta - rate, 0)
    return np.clip(np.minimum(left, right), 0, 1)


def permitted_auc(epsilon: float, delta: float) -> float:
    """The area under the largest TPRs."""
    grid = np.concatenate([[0.0], np.logspace(-12, 0, 20001)])
    return float(np.trapezoid(permitted_tpr(grid, epsilon, delta), grid))
