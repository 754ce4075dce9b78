"""Lower bounds on epsilon hold as often as they say, and reach what they can."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from dpaf_jax.audit import bounds
from dpaf_jax.audit.noise_laws import LAWS
from dpaf_jax.privacy import accounting
from dpaf_jax.verify import accountant

ALPHA, DELTA = 0.05, 1e-5


def scores(mu, repetitions, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(mu, 1, repetitions), rng.normal(0, 1, repetitions)


def test_epsilon_of_known_errors():
    # No error in 1000 guesses a side: each rate is below r with (1 - r)^1000 = alpha / 2.
    rate = 1 - (ALPHA / 2) ** (1 / 1000)
    found = bounds.epsilon_of(bounds.Errors(0, 1000, 0, 1000), ALPHA, 0.0)
    assert found == pytest.approx(math.log((1 - rate) / rate), rel=1e-6)
    assert bounds.epsilon_of(bounds.Errors(500, 1000, 500, 1000), ALPHA, 0.0) == 0
    # Guessing 'out' nearly always is as telling as guessing 'in' nearly never.
    one = bounds.epsilon_of(bounds.Errors(0, 100, 60, 100), ALPHA, DELTA)
    other = bounds.epsilon_of(bounds.Errors(60, 100, 0, 100), ALPHA, DELTA)
    assert one == other > 1


@pytest.mark.parametrize('mu', [0.0, 0.5, 2.0])
def test_bounds_exceed_the_truth_no_more_often_than_alpha(mu):
    # A bound that took the best threshold on the same scores fails this at mu = 0.
    truth = bounds.gaussian_epsilon(mu, DELTA)
    wrong_epsilon = wrong_mu = 0
    for seed in range(200):
        made = scores(mu, 200, seed)
        wrong_epsilon += bounds.epsilon_lower_bound(*made, ALPHA, DELTA) > truth
        wrong_mu += bounds.mu_lower_bound(*made, ALPHA) > mu
    most = stats.binom.isf(1e-4, 200, ALPHA)
    assert wrong_epsilon <= most and wrong_mu <= most


def test_bounds_come_close_with_many_repetitions():
    made = scores(1.0, 20_000, 0)
    assert 0.85 < bounds.mu_lower_bound(*made, 1e-4) < 1
    truth = bounds.gaussian_epsilon(1.0, DELTA)
    assert 0.3 * truth < bounds.epsilon_lower_bound(*made, 1e-4, DELTA) < truth


@pytest.mark.parametrize('mu', [1e-4, 0.1, 1.0, 3.0, 30.0])
@pytest.mark.parametrize('delta', [1e-10, 1e-5, 0.1])
def test_epsilon_of_a_gaussian_is_that_of_its_trade_off(mu, delta):
    assert bounds.gaussian_epsilon(mu, delta) == pytest.approx(
        accountant.gaussian_epsilon(mu, delta), abs=1e-8
    )


def test_epsilon_of_a_gaussian_is_below_the_accountants():
    for mu in (0.3, 1.0, 3.0):
        event = dp_accounting.GaussianDpEvent(1 / mu)
        spent = accounting.epsilon_pld(event, DELTA)
        assert bounds.gaussian_epsilon(mu, DELTA) == pytest.approx(spent, abs=1e-3)
        assert bounds.gaussian_epsilon(mu, DELTA) <= spent
    assert bounds.gaussian_epsilon(0.0, DELTA) == 0


def test_one_run_bound_of_randomised_response():
    # The mechanism that the theorem is tight for: answers right with e^eps / (1 + e^eps).
    epsilon, m, wrong = 1.0, 100, 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        correct = rng.binomial(m, math.exp(epsilon) / (1 + math.exp(epsilon)))
        wrong += bounds.one_run_lower_bound(m, m, correct, ALPHA, 0.0) > epsilon
    assert wrong <= stats.binom.isf(1e-4, 200, ALPHA)
    assert wrong > 0  # at delta = 0 nothing is given away


def test_one_run_bound_falls_with_delta_and_rises_with_hits():
    found = [bounds.one_run_lower_bound(100, 50, 50, ALPHA, d) for d in (0, 1e-5, 1e-3)]
    assert found[0] > found[1] > found[2]
    assert bounds.one_run_lower_bound(100, 50, 25, ALPHA, DELTA) == 0


def test_bounds_are_those_of_jax_privacy():
    auditing = pytest.importorskip('jax_privacy.auditing')
    made = scores(1.5, 500, 4)
    theirs = auditing.CanaryScoreAuditor(*made)
    for threshold in (-1.0, 0.7, 2.5):
        errors = bounds.errors_at(threshold, *made)
        expected = theirs.epsilon_clopper_pearson(
            ALPHA,
            DELTA,
            one_sided=False,
            threshold_strategy=auditing.Explicit(threshold),
        )
        assert bounds.epsilon_of(errors, ALPHA, DELTA) == pytest.approx(expected)
    guesses = errors.num_in - errors.false_out + errors.false_in
    correct = errors.num_in - errors.false_out
    expected = theirs.epsilon_one_run(
        ALPHA, DELTA, threshold_strategy=auditing.Explicit(threshold)
    )
    ours = bounds.one_run_lower_bound(1000, guesses, correct, ALPHA, DELTA)
    assert ours == pytest.approx(expected, abs=1e-5) and ours > 0


# --- laws of noise --------------------------------------------------------------------


@pytest.mark.parametrize('name', ['gaussian', 'laplace'])
def test_limits_hold_the_scale_of_the_noise_and_exclude_another(name):
    law, rng, hits = LAWS[name], np.random.default_rng(5), 0
    draw = rng.normal if name == 'gaussian' else rng.laplace
    for _ in range(200):
        low, made, high = law.scale(draw(0, 1, 400), 0.1)
        assert low < made < high
        hits += low <= 1 <= high
    assert 165 <= hits <= 193  # 180 of 200 at 90 %, three standard errors either way
    low, _, high = law.scale(0.9 * draw(0, 1, (2000, 5)), 1e-4)
    assert high < 1 and low > 0.8
    assert np.std(draw(0, 1, 100_000)) == pytest.approx(law.std, rel=0.02)
