"""Lower bounds on epsilon from the scores of an attack, each with its confidence.

Valid here, at the confidence stated, whatever the mechanism and however bad the attack:

- `epsilon_lower_bound`: Clopper-Pearson limits on an attack's two error rates (Jagielski,
  Ullman and Oprea 2020; Nasr et al. 2021), the threshold chosen on other repetitions;
- `one_run_lower_bound`: Steinke, Nasr and Jagielski 2023, Theorem 5.2, the number of
  guesses fixed beforehand.

`mu_lower_bound` (Nasr et al. 2023; Dong, Roth and Su 2022) refutes the claim that a
release is mu-GDP: also valid, but about mu. Read as an epsilon it holds for mechanisms that
are Gaussian, which is what our plans claim of a draw that contains the record; it is far
stronger at the same number of repetitions.

Of the auditors in `jax_privacy.auditing` 2.0, `epsilon_clopper_pearson` and
`epsilon_one_run` give the same bounds as these (tests compare them), with a strategy
`Bonferroni`, `Split`, `MultiSplit`, or `Explicit` at a threshold that no score has shaped.
`epsilon_one_run_fdp` and `epsilon_from_gdp` are bounds under a Gaussian trade-off only.
Not lower bounds: `epsilon_raw_counts` (a point estimate, the largest over thresholds),
`tpr_at_given_fpr` and `attack_auroc` (point estimates), and any of them with
`BootstrapParams`: its interval is that of the estimate, not of epsilon. The package stays
outside our dependencies: importing it takes chex and pydantic, and all of its parts.
"""

from collections.abc import Callable
from typing import NamedTuple

import dp_accounting
import numpy as np
from scipy import optimize, special, stats

from dpaf_jax.runtime.rates import clopper_pearson

Counts = np.ndarray | int | float


class Errors(NamedTuple):
    """What an attack got wrong: guesses 'in' of `num_out`, guesses 'out' of `num_in`.

    The counts may be arrays: several thresholds at once.
    """

    false_in: Counts
    num_out: int
    false_out: Counts
    num_in: int

    def upper(self, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """Both error rates' upper limits; together they fail with at most `alpha`."""
        _, false_in = clopper_pearson(self.false_in, self.num_out, alpha)
        _, false_out = clopper_pearson(self.false_out, self.num_in, alpha)
        return false_in, false_out


def errors_at(
    thresholds: Counts, scores_in: np.ndarray, scores_out: np.ndarray
) -> Errors:
    """Errors of guessing 'in' from each threshold upwards."""
    below_in = np.searchsorted(np.sort(scores_in), thresholds)
    below_out = np.searchsorted(np.sort(scores_out), thresholds)
    num_in, num_out = len(scores_in), len(scores_out)
    return Errors(num_out - below_out, num_out, below_in, num_in)


def epsilon_of(errors: Errors, alpha: float, delta: float) -> np.ndarray:
    """Epsilon below which these errors would be too few; 0 where they show nothing.

    Under (epsilon, delta)-DP: 1 - FNR <= e^epsilon FPR + delta, and with FPR and FNR
    exchanged (Kairouz, Oh and Viswanath 2015).
    """
    false_in, false_out = errors.upper(alpha)
    one = np.maximum(1 - delta - false_out, 1e-300) / false_in
    other = np.maximum(1 - delta - false_in, 1e-300) / false_out
    return np.maximum(np.log(np.maximum(one, other)), 0.0)


def mu_of(errors: Errors, alpha: float) -> np.ndarray:
    """Largest mu such that mu-GDP is refuted: Phi^-1(1 - FPR) - Phi^-1(FNR), or 0."""
    false_in, false_out = errors.upper(alpha)
    return np.maximum(-special.ndtri(false_in) - special.ndtri(false_out), 0.0)


def epsilon_lower_bound(
    scores_in: np.ndarray, scores_out: np.ndarray, alpha: float, delta: float
) -> float:
    """Epsilon that is exceeded with confidence 1 - alpha.

    Args:
        scores_in: [R] of independent repetitions with the canary; larger means 'in'.
        scores_out: [R] without.
        alpha: chance that the bound is wrong.
        delta: at which epsilon is meant.

    Returns:
        At least 0. The threshold comes from every second repetition, the bound from the
        others.
    """
    return _bound(scores_in, scores_out, lambda e: epsilon_of(e, alpha, delta))


def mu_lower_bound(
    scores_in: np.ndarray, scores_out: np.ndarray, alpha: float
) -> float:
    """Mu that is exceeded with confidence 1 - alpha; arguments as above."""
    return _bound(scores_in, scores_out, lambda e: mu_of(e, alpha))


def _bound(
    scores_in: np.ndarray,
    scores_out: np.ndarray,
    bound_of: Callable[[Errors], np.ndarray],
) -> float:
    """The bound of the odd repetitions at the best threshold for the even ones."""
    first = scores_in[::2], scores_out[::2]
    candidates = np.unique(np.concatenate(first))
    best = candidates[np.argmax(bound_of(errors_at(candidates, *first)))]
    return float(bound_of(errors_at(best, scores_in[1::2], scores_out[1::2])))


def largest_bound(repetitions: int, alpha: float, delta: float) -> float:
    """What `epsilon_lower_bound` gives for an attack that never errs."""
    half = repetitions // 2
    return float(epsilon_of(Errors(0, half, 0, half), alpha, delta))


def largest_mu(repetitions: int, alpha: float) -> float:
    """What `mu_lower_bound` gives for an attack that never errs."""
    half = repetitions // 2
    return float(mu_of(Errors(0, half, 0, half), alpha))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of mu-GDP at delta (Dong, Roth and Su 2022, Corollary 2.13)."""
    return float(dp_accounting.get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0


def one_run_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """Chance of so many right guesses in one run, at most, under (epsilon, delta)-DP.

    Args:
        canaries: each was in or out by a fair coin of its own.
        guesses: how many were guessed; fixed beforehand.
        correct: of those.
        epsilon: claimed.
        delta: claimed.
    """
    right = special.expit(epsilon)
    beta = stats.binom.sf(correct - 1, guesses, right)
    i = np.arange(1, correct + 1)
    more = stats.binom.sf(correct - i - 1, guesses, right) - beta
    alpha = np.max(more / i, initial=0.0)
    return float(min(1.0, beta + 2 * canaries * delta * alpha))


def one_run_lower_bound(
    canaries: int, guesses: int, correct: int, alpha: float, delta: float
) -> float:
    """Epsilon that is exceeded with confidence 1 - alpha, from one run's guesses."""

    def excess(epsilon: float) -> float:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) - alpha

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
        if high > 1e3:  # delta = 0 or nearly: even e^-1000 would have been seen
            return high
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-9))
