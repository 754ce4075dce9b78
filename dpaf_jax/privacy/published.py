"""The privacy bound printed in the DPAF paper, for `as_published` runs only.

Preprint section 5.4, Theorems 1-5: Renyi DP of the Gaussian mechanism, amplified by
subsampling without replacement (Wang, Balle and Kasiviswanathan 2019), added over
steps and parts, converted to (epsilon, delta). docs/explanation/published_proofs.md says why
the theorem does not describe the algorithm; nothing computed here is ever called a guarantee.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.runtime.errors import UserError

ORDERS = range(2, 257)


def rdp_subsampled(prob: float, noise_multiplier: float) -> np.ndarray:
    """Theorem 3 at every order of `ORDERS`, for one step.

    Args:
        prob: share of the data in one batch drawn without replacement, in (0, 1].
        noise_multiplier: noise standard deviation over sensitivity.

    Returns:
        [len(ORDERS)] float64 Renyi divergences. The Gaussian's divergence of infinite
        order is infinite, so each `min` of the theorem takes its other branch.
    """
    orders = np.array(ORDERS, float)
    gaussian = orders / (2 * noise_multiplier**2)
    if prob >= 1:
        return gaussian
    j = np.arange(2, ORDERS[-1] + 1)
    at_j = j / (2 * noise_multiplier**2)
    tail = (j - 1) * at_j + math.log(2)
    tail[0] = min(math.log(4) + np.log(np.expm1(at_j[0])), math.log(2) + at_j[0])
    terms = j * math.log(prob) + _log_binomial(orders[:, None], j) + tail
    total = np.logaddexp(0.0, special.logsumexp(terms, axis=1))
    return np.minimum(total / (orders - 1), gaussian)


def _log_binomial(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """-inf where k is above n, as gammaln is infinite at 0, -1, ..."""
    return np.asarray(
        special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    )


def epsilon(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """Theorem 5: the epsilon that the paper states for these mechanisms."""
    total = np.zeros(len(ORDERS))
    for m in mechanisms:
        total += m.steps * rdp_subsampled(m.sampling_prob, m.noise_multiplier)
    orders = np.array(ORDERS, float)
    return float(np.min(total + math.log(1 / delta) / (orders - 1)))


def calibrate(
    mechanisms: Sequence[Mechanism],
    shares: Mapping[str, float | None],
    target: float,
    delta: float,
) -> list[Mechanism]:
    """Noise for each share by Theorem 5; the mechanism without one takes the rest.

    Raises:
        UserError: the theorem cannot state an epsilon so small at any noise.
    """
    settled: dict[str, Mechanism] = {}
    for m in sorted(mechanisms, key=lambda m: shares[m.name] is None):
        share = shares[m.name]
        others = list(settled.values()) if share is None else []
        settled[m.name] = _calibrate(
            m, others, target if share is None else share, delta
        )
    return [settled[m.name] for m in mechanisms]


def _calibrate(
    mechanism: Mechanism, others: list[Mechanism], target: float, delta: float
) -> Mechanism:
    def at(sigma: float) -> Mechanism:
        return dataclasses.replace(mechanism, noise_multiplier=sigma)

    low, high = 0.05, 1e3
    if epsilon([*others, at(high)], delta) > target:
        raise UserError(
            'config.privacy.budgets',
            f'gives {mechanism.name} a share that the published theorem cannot state',
            f'Its smallest epsilon at delta {delta:g} is about '
            f'{math.log(1 / delta) / (ORDERS[-1] - 1):.2g} even with unbounded noise',
        )
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (
            (low, middle)
            if epsilon([*others, at(middle)], delta) <= target
            else (middle, high)
        )
    return at(high)
