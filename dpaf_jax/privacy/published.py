"""The privacy bound printed in the DPAF paper, for `as_published` runs only.

Preprint section 5.4, Theorems 1-5: Renyi DP of the Gaussian mechanism, amplified by
subsampling without replacement (Wang, Balle and Kasiviswanathan 2019), added over
steps and parts, converted to (epsilon, delta). docs/explanation/published_proofs.md says why
the theorem does not describe the algorithm; nothing computed here is ever called a guarantee.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.runtime.errors import UserError

ORDERS = range(2, 257)
MOST_NOISE = 1e3  # of a calibration; more hardly lowers what the theorem states


def rdp_subsampled(prob: float, noise_multiplier: float) -> np.ndarray:
    """Theorem 3 at every order of `ORDERS`, for one step.

    Args:
        prob: share of the data in one batch drawn without replacement, in (0, 1].
        noise_multiplier: noise standard deviation over sensitivity.

    Returns:
        [len(ORDERS)] float64 Renyi divergences. The Gaussian's divergence of infinite
        order is infinite, so each `min` of the theorem takes its other branch. Terms of order
        3 and more do not vanish with the noise, so neither does the sum.
    """
    orders = np.array(ORDERS, float)
    gaussian = orders / (2 * noise_multiplier**2)
    if prob >= 1:
        return gaussian
    j = np.arange(2, ORDERS[-1] + 1)
    at_j = j / (2 * noise_multiplier**2)
    tail = (j - 1) * at_j + math.log(2)
    tail[0] = min(math.log(4) + np.log(np.expm1(at_j[0])), math.log(2) + at_j[0])
    terms = j * math.log(prob) + _log_binomials() + tail
    total = np.logaddexp(0.0, special.logsumexp(terms, axis=1))
    return np.asarray(total / (orders - 1))


@functools.cache
def _log_binomials() -> np.ndarray:
    """[order, j] of order over j, j from 2 on; -inf where j is above the order."""
    n = np.array(ORDERS, float)[:, None]
    k = np.array(ORDERS, float)
    # gammaln is infinite at 0, -1, ...
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

    low, high = 0.05, MOST_NOISE
    least = epsilon([*others, at(high)], delta)
    if least > target:
        raise UserError(
            'config.privacy.budgets',
            f'leaves {mechanism.name} an epsilon that the published theorem cannot state',
            f'With any noise it states {math.ceil(least * 1000) / 1000:g} at least, at '
            f'sampling rate {mechanism.sampling_prob:.2g} and {mechanism.steps} steps. Raise '
            'the share, or take fewer steps',
        )
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (
            (low, middle)
            if epsilon([*others, at(middle)], delta) <= target
            else (middle, high)
        )
    return at(high)
