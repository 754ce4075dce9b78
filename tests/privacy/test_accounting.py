"""Contracts of the accountant: against dp-accounting, scipy and golden values."""

import dataclasses
import math
import re

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy import special, stats

from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.accounting import calibration
from dpaf_jax.privacy.accounting import epsilon as epsilons
from dpaf_jax.privacy.plan import CERTIFIED, Mechanism, PrivacyPlan
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify import accountant

DELTA = 1e-5


def make(**fields):
    values = {
        'name': 'conv1',
        'kind': '',
        'sampling_prob': 0.01,
        'l2_sensitivity': 1.0,
        'steps': 1000,
        'expected_batch_size': 1.0,
        'capacity': 1,
        'noise_multiplier': 1.0,
    }
    return Mechanism(**{**values, **fields})


def composed(*mechanisms):
    return dp_accounting.ComposedDpEvent([m.event() for m in mechanisms])


def pld_by_hand(event, delta):
    accountant = pld.PLDAccountant(
        dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
        value_discretization_interval=1e-4,
    )
    return accountant.compose(event).get_epsilon(delta)


def gaussian_delta(sigma, epsilon):
    """The exact trade-off of one Gaussian (Balle and Wang 2018, theorem 8)."""
    a, b = 1 / (2 * sigma), epsilon * sigma
    return stats.norm.cdf(a - b) - math.exp(epsilon) * stats.norm.cdf(-a - b)


# --- golden values --------------------------------------------------------------------


def test_two_mechanisms_on_fresh_samples_cost_less_than_on_one_sample():
    # DESIGN section 3: q = .01, sigma = 1, 1000 steps: 2.58 if fresh, 4.48 if shared.
    fresh = composed(make(), make(name='dpagg'))
    assert accounting.epsilon_pld(fresh, DELTA) == pytest.approx(2.58, abs=0.01)
    shared = make(noise_multiplier=2**-0.5).event()
    assert accounting.epsilon_pld(shared, DELTA) == pytest.approx(4.48, abs=0.01)


def test_a_gaussian_of_3_73_costs_epsilon_1():
    event = make(sampling_prob=1.0, steps=1, noise_multiplier=3.73).event()
    assert accounting.epsilon_pld(event, DELTA) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize('sigma', [0.8, 3.0, 20.0])
def test_epsilon_of_one_gaussian_is_exact_and_never_too_low(sigma):
    event = make(sampling_prob=1.0, steps=1, noise_multiplier=sigma).event()
    epsilon = accounting.epsilon_pld(event, DELTA)
    assert gaussian_delta(sigma, epsilon) <= DELTA
    assert gaussian_delta(sigma, epsilon - 1e-3) > DELTA
    assert accounting.epsilon_rdp(event, DELTA) > epsilon


def test_a_mechanism_is_a_composition_of_subsampled_gaussians():
    once = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(0.9))
    expected = dp_accounting.SelfComposedDpEvent(once, 300)
    event = make(steps=300, noise_multiplier=0.9).event()
    assert event == expected
    assert accounting.epsilon_pld(event, DELTA) == pld_by_hand(expected, DELTA)
    by_rdp = rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    )
    default_orders = by_rdp.compose(expected).get_epsilon(DELTA)
    assert accounting.epsilon_rdp(event, DELTA) == pytest.approx(
        default_orders, rel=0.02
    )


def test_the_event_does_not_depend_on_sensitivity():
    # Noise scales with it: a group's 2C is paid for by noise of twice the size.
    one, two = make(), make(l2_sensitivity=2.0, num_groups=8)
    assert one.event() == two.event()
    assert two.noise_std == 2 * one.noise_std == 2.0


def test_no_noise_is_not_private():
    mechanism = make(noise_multiplier=0.0, l2_sensitivity=math.inf)
    assert mechanism.event() == dp_accounting.NonPrivateDpEvent()
    assert mechanism.noise_std == 0.0


@pytest.mark.parametrize('epsilon', [0.12341, 1.0, 9.99999])
def test_rounding_up_never_goes_below(epsilon):
    assert epsilon <= accounting.round_up(epsilon) <= epsilon + 1e-4


# --- overflow -------------------------------------------------------------------------


def overflow_by_sum(n, prob, capacity):
    """P[Bin(n - 1, prob) >= capacity], term by term in logarithms."""
    k = np.arange(capacity, min(n, capacity + 2000))
    terms = (
        special.gammaln(n)
        - special.gammaln(k + 1)
        - special.gammaln(n - k)
        + k * np.log(prob)
        + (n - 1 - k) * np.log1p(-prob)
    )
    return float(np.exp(special.logsumexp(terms))) if len(k) else 0.0


@pytest.mark.parametrize(
    ('n', 'prob', 'capacity'), [(60000, 24 / 60000, 68), (40, 0.2, 20), (500, 0.5, 300)]
)
def test_overflow_is_the_tail_of_a_binomial(n, prob, capacity):
    made = accounting.overflow_probability(n, prob, capacity)
    assert made == pytest.approx(overflow_by_sum(n, prob, capacity), rel=1e-6)


def test_nine_deviations_are_room_enough_and_six_are_not():
    # DESIGN section 3: B = 24, N = 60 000, 50 000 steps.
    def beta(deviations):
        capacity = 24 + math.floor(deviations * math.sqrt(24))
        return 50000 * accounting.overflow_probability(60000, 24 / 60000, capacity)

    assert beta(9) == pytest.approx(8e-9, rel=0.05)
    assert beta(6) == pytest.approx(1e-2, rel=0.15)


def test_a_capacity_of_all_records_never_overflows():
    assert accounting.overflow_probability(40, 0.9, 40) == 0
    assert accounting.capacity_for(40, 1.0, 1e-9) == 40
    assert accounting.capacity_for(40, 0.2, 0.0) == 40


@pytest.mark.parametrize('tail', [1e-3, 1e-9, 1e-15])
@pytest.mark.parametrize(('n', 'prob'), [(60000, 24 / 60000), (1469, 0.1), (40, 0.6)])
def test_capacity_is_the_smallest_that_keeps_the_tail(n, prob, tail):
    capacity = accounting.capacity_for(n, prob, tail)
    assert overflow_by_sum(n, prob, capacity) <= tail * (1 + 1e-6)
    assert overflow_by_sum(n, prob, capacity - 1) > tail


@pytest.mark.parametrize('num_groups', [1, 4])
def test_all_draws_of_all_groups_pay_for_their_overflow(num_groups):
    mechanism = make(num_groups=num_groups, sampling_prob=0.2, steps=300)
    fitted = accounting.fit_capacity(mechanism, 100, 1e-7)
    per_group = overflow_by_sum(100, 0.2 / num_groups, fitted.capacity)
    beta = accounting.overflow_delta(fitted, 100)
    assert beta == pytest.approx(300 * num_groups * per_group, rel=1e-6)
    assert 0 < beta <= 1e-7
    fewer = dataclasses.replace(fitted, capacity=fitted.capacity - 1)
    assert accounting.overflow_delta(fewer, 100) > 1e-7


def test_slots_that_draws_share_overflow_as_their_sum_does():
    """The record is in s draws, so the others must leave it s slots."""
    shared, n, prob, capacity = 3, 10, 0.3, 14
    rng = np.random.default_rng(0)
    others = rng.binomial(n - 1, prob, (200_000, shared)).sum(axis=1)
    seen = np.mean(others + shared > capacity)
    made = accounting.overflow_probability(n, prob, capacity, shared)
    assert made == pytest.approx(seen, rel=0.03) and 0.03 < made < 0.3
    # A bound on one draw's overflow only would be far too low.
    assert accounting.overflow_probability(n, prob, capacity) == 0
    for q in (0.3, 1.0):
        most = accounting.capacity_for(n, q, 0.0, shared)
        assert most == shared * n
        assert accounting.overflow_probability(n, q, most, shared) == 0
        assert accounting.overflow_probability(n, 1.0, most - 1, shared) == 1


@pytest.mark.parametrize('shared', [1, 8])
def test_shared_slots_are_as_few_as_delta_pays_for(shared):
    mechanism = make(sampling_prob=24 / 60000, steps=12504, shared_by=shared)
    fitted = accounting.fit_capacity(mechanism, 60000, 1e-7)
    fewer = dataclasses.replace(fitted, capacity=fitted.capacity - 1)
    assert 0 < accounting.overflow_delta(fitted, 60000) <= 1e-7
    assert accounting.overflow_delta(fewer, 60000) > 1e-7
    assert fitted.capacity < {1: 75, 8: 320}[shared]


# --- calibration ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ('fields', 'epsilon'),
    [
        ({'sampling_prob': 1.0, 'steps': 1}, 1.0),
        ({'sampling_prob': 1.0, 'steps': 30}, 0.1),
        ({'sampling_prob': 0.05, 'steps': 200}, 0.5),
    ],
)
def test_calibration_meets_its_target_from_below_and_within_a_percent(fields, epsilon):
    mechanism = accounting.calibrate(make(**fields), (), epsilon, DELTA)
    sigma = mechanism.noise_multiplier
    assert pld_by_hand(mechanism.event(), DELTA) <= epsilon
    less = dataclasses.replace(mechanism, noise_multiplier=0.99 * sigma)
    assert pld_by_hand(less.event(), DELTA) > epsilon
    assert float(f'{sigma:.4g}') == sigma
    assert dataclasses.replace(mechanism, noise_multiplier=1.0) == make(**fields)


def test_calibration_counts_the_other_mechanisms():
    other = make(name='dpagg', sampling_prob=1.0, steps=1, noise_multiplier=12.0)
    wanted = make(sampling_prob=1.0, steps=2)
    alone = accounting.calibrate(wanted, (), 0.5, DELTA)
    beside = accounting.calibrate(wanted, [other], 0.5, DELTA)
    assert beside.noise_multiplier > alone.noise_multiplier
    assert pld_by_hand(composed(beside, other), DELTA) <= 0.5
    less = dataclasses.replace(beside, noise_multiplier=0.99 * beside.noise_multiplier)
    assert pld_by_hand(composed(less, other), DELTA) > 0.5


@pytest.mark.parametrize('left', [1e-2, 1e-4])
def test_what_others_leave_is_little_and_met(left):
    other = make(name='dpagg', sampling_prob=1.0, steps=1, noise_multiplier=3.0)
    epsilon = (1 + left) * accounting.epsilon_pld(other.event(), DELTA)
    settled = accounting.calibrate(
        make(sampling_prob=1.0, steps=2), [other], epsilon, DELTA
    )
    spent = pld_by_hand(composed(settled, other), DELTA)
    assert (1 - left) * epsilon < spent <= epsilon


def test_noise_that_drowns_everything_is_refused_with_its_own_remedy():
    with pytest.raises(UserError, match='would be above 10000') as error:
        accounting.calibrate(make(sampling_prob=1.0, steps=10**8), (), 0.1, DELTA)
    assert error.value.where == 'config.privacy.epsilon'


@pytest.mark.parametrize('tail', [1e-8, 1e-16, 5e-17, 1e-20])
def test_a_capacity_is_the_least_however_rare_its_overflow(tail):
    num, prob = 60_000, 50 / 60_000
    found = accounting.capacity_for(num, prob, tail)
    assert accounting.overflow_probability(num, prob, found) <= tail
    assert accounting.overflow_probability(num, prob, found - 1) > tail
    assert found < 150


def test_a_budget_that_the_others_have_spent_is_refused():
    other = make(name='dpagg', sampling_prob=1.0, steps=1, noise_multiplier=3.0)
    with pytest.raises(UserError, match='no noise on conv1 brings the total') as error:
        accounting.calibrate(make(sampling_prob=1.0, steps=1), [other], 1.0, DELTA)
    assert error.value.where == 'config.privacy.budgets'


def remedy(error):
    """The epsilon that a refusal recommends."""
    assert error.value.where == 'config.privacy.epsilon'
    return float(re.search(r'Ask for ([\d.e+-]+) at most', str(error.value)).group(1))


@pytest.mark.parametrize(
    ('fields', 'epsilon'),
    [
        ({'sampling_prob': 1.0, 'steps': 1}, 1e5),
        pytest.param(  # Renyi DP does not refuse it
            {'sampling_prob': 1.0, 'steps': 1}, 20.0, marks=pytest.mark.slow
        ),
        pytest.param(
            {'sampling_prob': 0.002, 'steps': 50_000}, 1e4, marks=pytest.mark.slow
        ),
    ],
)
def test_less_than_the_least_noise_is_refused_and_the_remedy_helps(fields, epsilon):
    with pytest.raises(UserError, match='below 0.3') as error:
        accounting.calibrate(make(**fields), (), epsilon, DELTA)
    most = remedy(error)
    least = make(noise_multiplier=accounting.MIN_NOISE_MULTIPLIER, **fields)
    spent = accounting.epsilon_pld(least.event(), DELTA)
    assert most <= spent < 1.01 * most
    settled = accounting.calibrate(make(**fields), (), most, DELTA)
    assert settled.noise_multiplier >= accounting.MIN_NOISE_MULTIPLIER
    assert accounting.epsilon_pld(settled.event(), DELTA) <= most


@pytest.mark.slow
def test_no_noise_of_a_proportion_is_below_the_least():
    both = [
        make(sampling_prob=1.0, steps=1, noise_multiplier=share) for share in (2.0, 3.0)
    ]
    with pytest.raises(UserError, match='below 0.3') as error:
        accounting.calibrate_together(both, (), 100.0, DELTA)
    settled = accounting.calibrate_together(both, (), remedy(error), DELTA)
    multipliers = [m.noise_multiplier for m in settled]
    assert accounting.MIN_NOISE_MULTIPLIER <= min(multipliers) < 0.31
    assert multipliers[1] == pytest.approx(1.5 * multipliers[0])


# --- the time that it takes -----------------------------------------------------------


def test_a_small_epsilon_has_a_finer_grid_and_takes_no_more_noise_than_by_renyi_dp():
    assert accounting.pld_grid(0.5) == epsilons.PLD_GRID
    assert accounting.pld_grid(0.01) == epsilons.PLD_GRID / 64
    assert accounting.pld_grid(1e-9) == epsilons.PLD_GRID / 256 > 0
    many = make(sampling_prob=50 / 60000, steps=20_000)
    settled = accounting.calibrate(many, (), 0.01, DELTA)
    assert settled.noise_multiplier < 31  # 79 on a grid of 1e-4
    by_rdp = accounting.epsilon_rdp(settled.event(), DELTA)
    assert accounting.epsilon_pld(settled.event(), DELTA) <= 0.01 < by_rdp


def test_a_large_epsilon_has_no_more_points_on_its_grid_and_stays_an_upper_bound():
    assert accounting.pld_grid(1.0) == accounting.pld_grid(32.0) == epsilons.PLD_GRID
    for epsilon in (33.0, 1e3, 1e6):
        points = epsilon / accounting.pld_grid(epsilon)
        assert 0.5 * 32 / epsilons.PLD_GRID < points <= 32 / epsilons.PLD_GRID
    event = make(sampling_prob=1.0, steps=1000, noise_multiplier=1.0).event()
    mu = math.sqrt(1000)
    exact = accountant.gaussian_epsilon(mu, DELTA)
    assert exact <= accounting.epsilon_pld(event, DELTA) < 1.001 * exact


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 30.0, 1000.0])
def test_calibration_asks_the_slow_accountant_a_few_times(epsilon, monkeypatch):
    """With the exact epsilon of a Gaussian in its place, on the grid that it would have."""
    asked = []

    class Exact:
        def __init__(self, grid):
            self.grid, self.sigma = grid, None

        def compose(self, event):
            for once in event.events:
                self.sigma = once.event.noise_multiplier
                self.steps = once.count
            return self

        def get_epsilon(self, delta):
            mu = math.sqrt(self.steps) / self.sigma
            asked.append((self.grid, mu**2 / self.grid))
            return accountant.gaussian_epsilon(mu, delta)

    monkeypatch.setattr(calibration, 'pld_accountant', Exact)
    settled = accounting.calibrate(
        make(sampling_prob=1.0, steps=50_000), (), epsilon, DELTA
    )
    mu = math.sqrt(50_000) / settled.noise_multiplier
    assert 0.99 * epsilon < accountant.gaussian_epsilon(mu, DELTA) <= epsilon
    finest = min(grid for grid, _ in asked)
    assert len(asked) <= 14 and max(points for _, points in asked) < 1e6
    most = 4 if epsilon > 0.1 else 10  # where no other grid is coarser
    assert sum(grid == finest for grid, _ in asked) <= most


def test_a_search_that_takes_long_says_so_once(monkeypatch, capsys):
    mechanism = make(sampling_prob=1.0, steps=1)
    accounting.calibrate(mechanism, (), 1.0, DELTA)
    assert capsys.readouterr().err == ''
    monkeypatch.setattr(calibration, 'PATIENCE', 0.0)
    monkeypatch.setattr(calibration._Progress, 'quiet_until', -math.inf)
    accounting.calibrate(mechanism, (), 1.0, DELTA)
    accounting.calibrate(mechanism, (), 2.0, DELTA)  # another mechanism's share
    told = capsys.readouterr().err
    assert told == 'Looking for the least noise with which conv1 has epsilon 1.\n'


# --- progress -------------------------------------------------------------------------


def test_spent_epsilon_grows_to_at_most_the_plans():
    often = {'sampling_prob': 0.3, 'noise_multiplier': 4.0}
    conv1, dpagg = make(steps=100, **often), make(name='dpagg', steps=50, **often)
    plan = PrivacyPlan(
        mechanisms=(conv1, dpagg),
        guarantee=CERTIFIED,
        epsilon=accounting.epsilon_pld(composed(conv1, dpagg), DELTA),
        epsilon_rdp=None,
        claimed_epsilon=None,
        delta=2 * DELTA,
        overflow_delta=DELTA,
        num_examples=100,
    )
    marks = [{}, {'conv1': 1}, {'conv1': 100}, {'conv1': 100, 'dpagg': 50}]
    spent = [accounting.spent_so_far(plan, mark) for mark in marks]
    assert spent[0] == 0
    assert spent == sorted(spent)
    assert spent[-1] == plan.epsilon
    part = dataclasses.replace(conv1, steps=1)
    assert spent[1] >= pld_by_hand(part.event(), DELTA)
    nothing = dataclasses.replace(plan, epsilon=None)
    assert accounting.spent_so_far(nothing, marks[-1]) is None
