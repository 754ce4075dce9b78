"""How well scores tell members from non-members, and how well a guarantee lets them."""

import dataclasses
import math
from typing import Any

import numpy as np

RATES = (0.01, 0.001)  # false positive rates at which the true positive rate is stated
RESAMPLES = 300
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Roc:
    """Members told from non-members by a threshold on a score.

    Attributes:
        members: [m] scores.
        non_members: [n] scores.
    """

    members: np.ndarray
    non_members: np.ndarray

    def auc(self) -> float:
        """Chance that a member scores above a non-member; ties count half."""
        ordered = np.sort(self.non_members)
        below = np.searchsorted(ordered, self.members, 'left')
        upto = np.searchsorted(ordered, self.members, 'right')
        return float(np.mean(below + upto) / 2 / len(ordered))

    def tpr(self, fpr: float) -> float:
        """Share of members above the lowest threshold with at most this FPR."""
        rank = math.floor(fpr * len(self.non_members) + 1e-9)
        if rank >= len(self.non_members):
            return 1.0
        threshold = -np.partition(-self.non_members, rank)[rank]
        return float(np.mean(self.members > threshold))

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """(FPR, TPR) at every rate that so many non-members can show."""
        ordered = -np.sort(-self.non_members)
        members = np.sort(self.members)
        above = len(members) - np.searchsorted(members, ordered, 'right')
        rates = np.arange(len(ordered)) / len(ordered)
        return np.append(rates, 1.0), np.append(above / len(members), 1.0)

    def summary(self, seed: int = 0) -> dict[str, Any]:
        """AUC and TPRs, each with the ends of its 95 % bootstrap interval."""
        coins = np.random.default_rng(seed)
        again = [
            Roc(coins.choice(self.members, len(self.members)),
                coins.choice(self.non_members, len(self.non_members)))
            for _ in range(RESAMPLES)
        ]  # fmt: skip
        found = {'auc': _with_interval(self.auc(), [r.auc() for r in again])}
        for rate in RATES:
            values = [r.tpr(rate) for r in again]
            found[f'tpr_at_fpr_{rate:g}'] = _with_interval(self.tpr(rate), values)
        return found


def _with_interval(value: float, resampled: list[float]) -> dict[str, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return {'value': value, 'low': float(low), 'high': float(high)}


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


def permitted(epsilon: float, delta: float) -> dict[str, float]:
    """The same figures as `Roc.summary`, at most."""
    grid = np.concatenate([[0.0], np.logspace(-12, 0, 20001)])
    auc = np.trapezoid(permitted_tpr(grid, epsilon, delta), grid)
    found = {'auc': float(auc)}
    for rate in RATES:
        found[f'tpr_at_fpr_{rate:g}'] = float(permitted_tpr(rate, epsilon, delta))
    return found
