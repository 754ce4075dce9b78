"""PATE's data-dependent epsilon: NOT private, and no guarantee of anything released here.

Where many teachers agree, noise hardly ever changes the winner, and one teacher moves the
answer less than the worst case says. The bound below is a function of the exact votes, so
stating it is a release that nothing pays for: it is a diagnostic for `nonprivate/` alone.

It bounds less than a run releases: the argmax of noisy votes, and whether the check passed.
Our ballots hold the noisy histograms themselves (`privacy/voting.py`), whose cost agreement
does not lower. So this is what the paper would state of the same votes, for comparison; and
as there it is the divergence from these data to their neighbours, not the other way round.

Source: Papernot et al. 2018, "Scalable private learning with PATE", theorem 6 (the bound,
its condition from the appendix), propositions 7 (q) and 10 (its two orders); G-PATE, lemmas
2 and 3 (the sum over queries).
"""

import numpy as np
from dp_accounting import rdp
from scipy import special

from dpaf_jax.privacy.accounting import ORDERS


def log_other_winner(histograms: np.ndarray, sigma: float) -> np.ndarray:
    """Proposition 7: log of q, at least the chance that noise elects another bin.

    Args:
        histograms: [..., B] exact votes.
        sigma: of the noise on every bin.

    Returns:
        [...] float64; never above log(1 - 1 / B), which is the chance where all tie.
    """
    gaps = np.max(histograms, axis=-1, keepdims=True) - np.sort(histograms, axis=-1)
    beaten = special.log_ndtr(-gaps[..., :-1] / (np.sqrt(2) * sigma))
    most = np.log1p(-1 / histograms.shape[-1])
    return np.minimum(special.logsumexp(beaten, axis=-1), most)


def log_other_verdict(
    histograms: np.ndarray, threshold: float, sigma: float
) -> np.ndarray:
    """The same of the check: log of the chance of its less likely outcome.

    Args:
        histograms: [..., B] exact votes.
        threshold: votes that the highest bin must have.
        sigma: of the noise on its height.
    """
    beyond = np.abs(np.max(histograms, axis=-1) - threshold) / sigma
    return special.log_ndtr(-beyond)


def renyi(log_q: np.ndarray, variance: float) -> np.ndarray:
    """Theorem 6 at the orders of proposition 10, or the data-independent bound, if less.

    Args:
        log_q: [...] log of a bound on the chance of all outcomes but the likeliest.
        variance: v of a mechanism whose data-independent bound is order / v: sigma2^2 for
            the winner, 2 sigma1^2 for the check.

    Returns:
        [..., O] float64 by `accounting.ORDERS`.
    """
    orders, log_q = np.array(ORDERS, float), np.asarray(log_q, float)[..., None]
    mu2 = np.sqrt(-variance * log_q)
    mu1 = mu2 + 1
    epsilon1, epsilon2 = mu1 / variance, mu2 / variance
    shape = np.broadcast_shapes(log_q.shape, orders.shape)
    independent = np.broadcast_to(orders / variance, shape)
    with np.errstate(all='ignore'):  # what is no number fails the theorem's conditions
        # Below this the bound rises with q, so a bound on q will do.
        ratio = mu1 / (mu1 - 1) * mu2 / (mu2 - 1)
        rising = (mu2 - 1) * epsilon2 - mu2 * np.log(ratio)
        holds = (mu2 > 1) & (orders <= mu2) & (log_q + epsilon2 < 0) & (log_q <= rising)
        log_1q = _log1mexp(log_q)
        log_a = log_1q - _log1mexp((log_q + epsilon2) * (mu2 - 1) / mu2)
        log_b = epsilon1 - log_q / (mu1 - 1)
        moment = np.logaddexp(
            log_1q + (orders - 1) * log_a, log_q + (orders - 1) * log_b
        )
        bound = moment / (orders - 1)
    return np.where(holds, np.minimum(bound, independent), independent)


def _log1mexp(x: np.ndarray) -> np.ndarray:
    """log(1 - e^x) for x below 0, to all digits."""
    return np.where(x > -0.5, np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def renyi_of_queries(
    histograms: np.ndarray,
    passed: np.ndarray,
    sigma2: float,
    check: tuple[float, float] | None,
) -> np.ndarray:
    """What Confident-GNMax costs on these votes: all checks, and the answers given.

    Args:
        histograms: [..., B] exact votes.
        passed: [...] bool, whether the noisy check let the query through.
        sigma2: noise of the bins.
        check: (threshold in votes, sigma1); None where there is no check.

    Returns:
        [O] float64 by `accounting.ORDERS`: summed over the queries.
    """
    answers = renyi(log_other_winner(histograms[passed], sigma2), sigma2**2)
    total: np.ndarray = answers.sum(axis=0)
    if check:
        verdicts = log_other_verdict(histograms, *check).ravel()
        total = total + renyi(verdicts, 2 * check[1] ** 2).sum(axis=0)
    return total


def epsilon(total: np.ndarray, delta: float) -> float:
    """Of a sum of `renyi` at delta."""
    return float(rdp.compute_epsilon(ORDERS, total, delta)[0])
