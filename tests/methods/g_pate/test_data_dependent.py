"""PATE's data-dependent bound: theorem 6 by hand, and against exact divergences."""

import math

import numpy as np
import pytest
from scipy import stats

from dpaf_jax.methods.g_pate import data_dependent
from dpaf_jax.privacy.accounting import ORDERS

ORDER = np.array(ORDERS, float)


def by_hand(log_q, variance, order):
    """Theorem 6 as printed, at the orders of proposition 10; in plain arithmetic."""
    q = math.exp(log_q)
    mu2 = math.sqrt(variance * -log_q)
    mu1 = mu2 + 1
    a = (1 - q) / (1 - (q * math.exp(mu2 / variance)) ** ((mu2 - 1) / mu2))
    b = math.exp(mu1 / variance) / q ** (1 / (mu1 - 1))
    moment = (1 - q) * a ** (order - 1) + q * b ** (order - 1)
    return math.log(moment) / (order - 1)


def winner(histogram, sigma):
    """[O] the bound of one argmax."""
    log_q = data_dependent.log_other_winner(np.array(histogram), sigma)
    return data_dependent.renyi(log_q, sigma**2)


@pytest.mark.parametrize(
    ('histogram', 'sigma'), [([30, 0], 5.0), ([60, 10, 5, 0], 10.0), ([9, 0, 0], 1.5)]
)
def test_the_bound_is_the_printed_one(histogram, sigma):
    top, *others = histogram
    tails = stats.norm.sf([(top - n) / math.sqrt(2) / sigma for n in others])
    log_q = math.log(sum(tails))
    found = data_dependent.log_other_winner(np.array(histogram), sigma)
    assert found == pytest.approx(log_q, rel=1e-9)
    made = data_dependent.renyi(found, sigma**2)
    for place, order in enumerate(ORDERS[:3]):
        expected = by_hand(log_q, sigma**2, order)
        assert made[place] == pytest.approx(min(expected, order / sigma**2), rel=1e-6)
        assert expected < order / sigma**2


def test_it_is_never_above_the_data_independent_bound():
    rng = np.random.default_rng(0)
    for sigma in (0.5, 3.0, 40.0, 1000.0):
        votes = rng.multinomial(200, rng.dirichlet(np.ones(5), 300))
        made = winner(votes, sigma)
        assert made.shape == (300, len(ORDERS)) and np.all(np.isfinite(made))
        assert np.all(made >= 0) and np.all(made <= ORDER / sigma**2)


def test_unanimous_votes_cost_next_to_nothing_and_ties_cost_all():
    sigma = 10.0
    assert winner([200, 0, 0], sigma)[0] < 1e-20 * ORDER[0] / sigma**2
    for tie in ([100, 100], [50, 50, 50], [66, 66, 0]):
        np.testing.assert_allclose(winner(tie, sigma), ORDER / sigma**2, rtol=1e-15)
    # As far as float64 goes, and much further.
    assert np.all(np.isfinite(winner([10**6, 0], 1.0)))
    assert winner([10**6, 0], 1.0)[0] >= 0


def divergence(p, q, order):
    """Renyi's, of Bernoulli laws given as (log p, log(1 - p)); order may be an array."""
    logs = [order * a + (1 - order) * b for a, b in zip(p, q, strict=True)]
    return np.logaddexp(*logs) / (order - 1)


@pytest.mark.parametrize('sigma', [1.0, 4.0, 20.0])
def test_two_bins_exact_divergences_stay_below(sigma):
    """The winner of two bins is a coin; its divergence needs no integral."""

    def coin(gap):
        scaled = gap / (math.sqrt(2) * sigma)
        return stats.norm.logcdf(scaled), stats.norm.logsf(scaled)

    below = 0
    for ahead in range(50, 101):
        gap = 2 * ahead - 100
        bound = winner([ahead, 100 - ahead], sigma)
        for moved in (gap - 2, gap + 2):  # one vote changes sides
            exact = divergence(coin(gap), coin(moved), ORDER)
            assert np.all(exact <= bound * (1 + 1e-9) + 1e-12)
        below += bound[0] < 0.99 * ORDER[0] / sigma**2
    assert below > 5  # the theorem says something on many of them


def test_half_the_noise_is_found_out():
    """The bound at sigma does not hold of votes with noise of sigma / 2."""
    sigma = 4.0

    def coin(gap):
        scaled = gap / (math.sqrt(2) * sigma / 2)
        return stats.norm.logcdf(scaled), stats.norm.logsf(scaled)

    exact = divergence(coin(0), coin(2), ORDERS[0])
    assert exact > winner([50, 50], sigma)[0]


def test_the_check_costs_its_worst_case_at_the_threshold_and_little_far_from_it():
    sigma1, histograms = 10.0, np.array([[60, 40], [100, 0], [50, 50]])
    at, above, below = (
        data_dependent.renyi(
            data_dependent.log_other_verdict(histograms[i], threshold, sigma1),
            2 * sigma1**2,
        )
        for i, threshold in ((0, 60.0), (1, 10.0), (2, 140.0))
    )
    np.testing.assert_allclose(at, ORDER / (2 * sigma1**2), rtol=1e-15)
    np.testing.assert_allclose(above, below, rtol=1e-12)
    assert above[0] < 1e-3 * at[0]
    for moved in (89, 91):
        p, q = (
            (stats.norm.logcdf(x / 10), stats.norm.logsf(x / 10)) for x in (90, moved)
        )
        assert np.all(divergence(p, q, ORDER) <= above * (1 + 1e-9) + 1e-12)


def test_queries_add_up_and_only_answers_are_charged():
    histograms = np.array([[[60, 40], [90, 10]], [[50, 50], [99, 1]]])
    every, few = np.ones((2, 2), bool), np.array([[True, False], [True, True]])
    one = winner(histograms, 10.0)
    total = data_dependent.renyi_of_queries(histograms, every, 10.0, None)
    np.testing.assert_allclose(total, one.sum(axis=(0, 1)), rtol=1e-12)
    checked = data_dependent.renyi_of_queries(histograms, few, 10.0, (50.0, 30.0))
    verdicts = data_dependent.log_other_verdict(histograms, 50.0, 30.0)
    expected = one[few].sum(axis=0)
    expected += data_dependent.renyi(verdicts, 1800.0).sum(axis=(0, 1))
    np.testing.assert_allclose(checked, expected, rtol=1e-12)
    nothing = data_dependent.renyi_of_queries(histograms, ~every, 10.0, None)
    assert data_dependent.epsilon(nothing, 1e-5) == 0
    assert data_dependent.epsilon(total, 1e-5) > data_dependent.epsilon(
        total - one[1, 0], 1e-5
    )
