"""Published epsilons, three accountants against them and against each other.

Older figures come from Renyi DP with the conversion of Mironov 2017, proposition 3
(`by_moments` here), newer ones from tighter conversions or numerical composition: what
was published then is an upper bound now.
"""

import functools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from scipy import special, stats

from dpaf_jax.privacy.accounting import epsilon_rdp
from dpaf_jax.verify import accountant as independent
from dpaf_jax.verify.accountant import SampledGaussian, epsilon_bounds, log_moment

DELTA = 1e-5
MNIST = 60000


def event_of(*queries: SampledGaussian) -> dp_accounting.DpEvent:
    """The same queries for dp-accounting, without this package's plan."""
    events = []
    for m in queries:
        once = dp_accounting.GaussianDpEvent(m.noise_multiplier)
        if m.sampling_prob < 1:
            once = dp_accounting.PoissonSampledDpEvent(m.sampling_prob, once)
        events.append(dp_accounting.SelfComposedDpEvent(once, m.steps))
    return dp_accounting.ComposedDpEvent(events)


def epsilon_pld(event, delta, grid=1e-4):
    relation = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    accountant = pld.PLDAccountant(relation, value_discretization_interval=grid)
    return accountant.compose(event).get_epsilon(delta)


def by_moments(query, delta=DELTA, orders=range(2, 65)):
    """Epsilon by Abadi et al. 2016, theorem 2: from our own closed form of the moments."""
    return min(
        (log_moment(query, order) + math.log(1 / delta)) / (order - 1)
        for order in orders
    )


def epochs(noise_multiplier, batch, number, of=MNIST):
    """DP-SGD as the tutorials run it: whole batches, rounded down."""
    return SampledGaussian(noise_multiplier, batch / of, number * of // batch)


# --- figures in print -----------------------------------------------------------------

BY_MOMENTS = {
    # Abadi et al. 2016, section 3.2 and figure 2: q = 0.01, sigma = 4, T = 10 000 give
    # (1.26, 1e-5); TF Privacy's rdp_accountant_test.py prints the digits.
    'Abadi et al.': (SampledGaussian(4.0, 0.01, 10000), 1.258575, 1e-6),
    # TF Privacy, tutorials/README.md (first version): batches of 256 of 60 000.
    'TF Privacy, first, 1.12': (epochs(1.12, 256, 60), 2.92, 0.01),
    'TF Privacy, first, 0.6': (epochs(0.6, 256, 30), 9.74, 0.01),
    'TF Privacy, first, 1.2': (epochs(1.2, 256, 10), 1.20, 0.01),
    # Opacus, examples/mnist_README.md, its sample parameter sets.
    'Opacus, 0.7': (epochs(0.7, 256, 45), 7.10, 0.01),
    'Opacus, 1.1': (epochs(1.1, 256, 60), 3.01, 0.01),
    'Opacus, 1.3': (epochs(1.3, 256, 15), 1.19, 0.01),
    # Bu, Dong, Long and Su 2020, "Deep learning with Gaussian differential privacy",
    # figure 4: the moments accountant at epoch 20.
    'Bu et al., 1.3': (epochs(1.3, 256, 20), 1.34, 0.01),
}


@pytest.mark.parametrize('name', BY_MOMENTS)
def test_the_moments_reproduce_what_was_published(name):
    query, published, tolerance = BY_MOMENTS[name]
    # Ours are integer orders; the tables also used orders in between.
    found = by_moments(query)
    assert published - tolerance <= found <= published * 1.012


@pytest.mark.parametrize(
    'name',
    [
        'Abadi et al.',
        pytest.param('TF Privacy, first, 1.12', marks=pytest.mark.slow),
        pytest.param('Bu et al., 1.3', marks=pytest.mark.slow),
    ],
)
def test_todays_epsilon_is_below_what_was_published(name):
    query, published, tolerance = BY_MOMENTS[name]
    tight, loose = (
        epsilon_pld(event_of(query), DELTA),
        epsilon_rdp(event_of(query), DELTA),
    )
    lower, upper = epsilon_bounds([query], DELTA)
    assert lower <= tight <= 1.002 * upper < loose < published + tolerance


def test_the_order_that_abadi_et_al_found():
    query = BY_MOMENTS['Abadi et al.'][0]
    # TF Privacy's rdp_accountant_test.py: the best of the orders 2 to 32 is 20.
    assert by_moments(query, orders=[20]) == by_moments(query)


def test_three_orders_give_opacus_documentations_figure():
    # https://opacus.ai/api/compute_dp_sgd_privacy.html: --dataset-size=60000
    # --batch-size=256 --noise_multiplier=1.12 --epochs=60 --delta=1e-5 --a 10 20 100: 2.95
    found = by_moments(epochs(1.12, 256, 60), orders=[10, 20, 100])
    assert found == pytest.approx(2.95, abs=0.01)


OPACUS_TEST = SampledGaussian(1.5, 0.04, 2250)


def test_opacus_own_tests():
    # opacus/tests/accountants_test.py, test_rdp_accountant (the tighter conversion).
    event = event_of(OPACUS_TEST)
    assert epsilon_rdp(event, DELTA) == pytest.approx(7.32911117143, rel=2e-4)
    # test_prv_accountant: Gopi et al.'s upper estimate, with its eps_error of 0.01.
    upper_estimate = 6.777395712150674
    lower, upper = epsilon_bounds([OPACUS_TEST], DELTA)
    assert lower <= upper_estimate - 0.01 + 0.002 <= upper
    assert (lower + upper) / 2 == pytest.approx(upper_estimate - 0.01, abs=0.005)
    assert epsilon_pld(event, DELTA) == pytest.approx(upper_estimate - 0.01, abs=0.005)


@pytest.mark.parametrize(
    ('noise_multiplier', 'sampling_prob', 'steps'),
    [
        (0.67379294682, 0.01, 1),
        (3.20956502598 / 6, 0.001, 25),  # theirs has sensitivity 6
    ],
)
def test_googles_least_noise_for_epsilon_1(noise_multiplier, sampling_prob, steps):
    # dp_accounting/pld/accountant_test.py, get_smallest_subsampled_gaussian_noise.
    query = SampledGaussian(noise_multiplier, sampling_prob, steps)
    lower, upper = epsilon_bounds([query], DELTA)
    assert lower <= 1 <= upper < lower + 0.003


def test_a_gaussian_whose_epsilon_by_renyi_dp_is_1():
    # dp_accounting/rdp/rdp_privacy_accountant_test.py: (1, 1e-6) over all orders.
    query = SampledGaussian(4.530877117, 1.0, 1)
    assert epsilon_rdp(event_of(query), 1e-6) == pytest.approx(1.0, abs=1e-4)
    assert epsilon_bounds([query], 1e-6).upper < 0.93


@pytest.mark.parametrize(
    ('order', 'published'),
    [(5, 2.18075656e-03), (50, 2.38460375e-02), (100, 1.67416308e02)],
)
def test_renyi_divergences_of_the_sampled_gaussian(order, published):
    # rdp_privacy_accountant_test.py: sigma = 2.5, q = 0.01, 50 steps. The formula is Mironov,
    # Talwar and Zhang 2019, section 3.3.
    found = log_moment(SampledGaussian(2.5, 0.01, 50), order) / (order - 1)
    assert found == pytest.approx(published, rel=1e-6)


@pytest.mark.parametrize('order', [2, 7, 300])
def test_renyi_divergences_of_the_gaussian(order):
    # Mironov 2017, proposition 7: order / (2 sigma^2).
    found = log_moment(SampledGaussian(3.0, 1.0, 4), order) / (order - 1)
    assert found == pytest.approx(4 * order / 18)


@pytest.mark.parametrize(
    ('epsilon', 'grid'),
    [
        (1.0, 1e-4),
        pytest.param(0.2, 1e-5, marks=pytest.mark.slow),
        pytest.param(10.0, 1e-4, marks=pytest.mark.slow),
    ],
)
def test_the_settings_of_dpdm(epsilon, grid):
    # configs/mnist_28/train_eps_*.yaml and its Opacus call: batches of 4096 of 60 000, 300
    # epochs of 15 steps, delta 1e-5, sigma for the epsilon by Renyi DP. It prints no sigma.
    def query(sigma):
        return SampledGaussian(sigma, 1 / 15, 4500)

    low, high = 0.5, 500.0
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        spent = epsilon_rdp(event_of(query(middle)), DELTA)
        low, high = (middle, high) if spent > epsilon else (low, middle)
    lower, upper = epsilon_bounds([query(high)], DELTA)
    tight = epsilon_pld(event_of(query(high)), DELTA, grid)
    assert lower <= tight <= 1.01 * upper
    assert 0.8 * epsilon < lower < upper < epsilon


def test_balle_and_wangs_exact_gaussian():
    # Their theorem 8, and delta of the returned epsilon by the formula itself.
    for sigma in (0.3, 1.0, 3.73, 50.0):
        found = independent.gaussian_epsilon(1 / sigma, DELTA)
        a, b = 1 / (2 * sigma), found * sigma
        delta = special.ndtr(a - b) - math.exp(found) * special.ndtr(-a - b)
        assert delta == pytest.approx(DELTA, rel=1e-6)
    assert independent.gaussian_epsilon(1e-6, DELTA) == 0.0
    assert independent.gaussian_epsilon(0.0, DELTA) == 0.0


# --- the third accountant against dp-accounting, and against the truth -------------------


def check_against_dp_accounting(query):
    event = event_of(query)
    lower, upper = epsilon_bounds([query], DELTA)
    loose = epsilon_rdp(event, DELTA)
    assert lower <= upper <= 1.006 * lower + 1e-8  # which is none
    assert upper <= 1.003 * loose + 1e-6
    if loose < 20:  # beyond, dp-accounting takes long
        # Its pessimistic estimate is never too low, and tight on a grid that is fine beside
        # the loss of one step.
        grid = 1e-4 if loose > 1 else 2e-5
        tight = epsilon_pld(event, DELTA, grid)
        assert lower <= tight
        if grid < 0.1 * query.sampling_prob / query.noise_multiplier:
            assert tight <= 1.005 * upper + 1e-4


@pytest.mark.parametrize(
    'query',
    [
        pytest.param((0.7, 4e-4, 300), marks=pytest.mark.slow),
        pytest.param((1.5, 0.01, 1), marks=pytest.mark.slow),
        (1.5, 0.2, 30),
        (8.0, 0.7, 300),
        (40.0, 0.01, 300),
    ],
)
def test_bounds_hold_dp_accountings_epsilon(query):
    check_against_dp_accounting(SampledGaussian(*query))


@pytest.mark.slow
@pytest.mark.parametrize('sampling_prob', [4e-4, 0.01, 0.2, 0.7])
@pytest.mark.parametrize('noise_multiplier', [0.6, 1.5, 6.0, 40.0])
@pytest.mark.parametrize('steps', [1, 30, 300, 10000])
def test_bounds_hold_it_everywhere(noise_multiplier, sampling_prob, steps):
    check_against_dp_accounting(SampledGaussian(noise_multiplier, sampling_prob, steps))


@pytest.mark.parametrize(
    ('queries', 'delta'),
    [
        # conv1, conv2 and DPAGG as plans compose them, with fewer steps.
        pytest.param(
            [(2.0, 192 / 6e4, 208), (1.0, 192 / 6e4, 521), (1.0, 24 / 6e4, 1000)],
            1e-6,
            marks=pytest.mark.slow,
        ),
        ([(8.0, 0.1, 20), (6.0, 1.0, 3), (9.0, 1.0, 1)], 1e-5),
        pytest.param(
            *([(1.0, 0.05, 100), (0.9, 0.01, 30)], 1e-5), marks=pytest.mark.slow
        ),
    ],
)
def test_several_mechanisms_compose(queries, delta):
    queries = [SampledGaussian(*query) for query in queries]
    lower, upper = epsilon_bounds(queries, delta)
    assert lower <= epsilon_pld(event_of(*queries), delta) <= 1.005 * upper
    assert upper < 1.006 * lower
    assert epsilon_bounds(queries[1:], delta).upper < lower  # each costs something


@pytest.mark.parametrize(
    ('sigma', 'steps', 'delta'),
    [
        (100.0, 10000, 1e-5),
        (300.0, 100000, 1e-6),
        (0.3, 2, 1e-6),
        (0.05, 10, 1e-6),  # 2300: beyond what exp holds
        (2000.0, 10000, 1e-6),
    ],
)
def test_the_grid_holds_the_exact_epsilon_of_gaussians(sigma, steps, delta):
    # Not what a plan takes (q = 1 is merged into one exact Gaussian): here the truth is known.
    exact = independent.gaussian_epsilon(math.sqrt(steps) / sigma, delta)
    grid = independent._Composition([SampledGaussian(sigma, 1.0, steps)], delta, 2**20)
    lower, upper = grid.bounds()
    assert lower <= exact <= upper
    assert upper - lower < 0.01 * exact


def monte_carlo(query, delta, draws, seed=0):
    """delta(epsilon) by simulation in both directions, at our upper bound of epsilon."""
    rng = np.random.default_rng(seed)
    q, s = query.sampling_prob, query.noise_multiplier
    epsilon = epsilon_bounds([query], delta).upper
    worst = []
    for sign in (1, -1):
        total = np.zeros(draws)
        for _ in range(query.steps):
            inside = rng.random(draws) < q if sign > 0 else 0.0
            x = rng.normal(0, s, draws) + inside
            total += sign * np.log1p(q * np.expm1((2 * x - 1) / (2 * s * s)))
        worst.append(np.maximum(0, -np.expm1(epsilon - total)).mean())
    return max(worst)


@pytest.mark.parametrize('query', [(1.0, 0.3, 5), (0.7, 0.1, 3), (2.0, 0.9, 8)])
def test_a_simulation_of_the_privacy_loss_agrees(query):
    # Nothing of either accountant: the loss of random outputs. Delta 0.05 is seen often.
    query = SampledGaussian(*query)
    assert monte_carlo(query, 0.05, 400_000) == pytest.approx(0.05, rel=0.03)


@pytest.mark.parametrize('steps', [1000, 100000])
def test_round_off_is_below_what_is_charged(steps):
    # Losses of 1 and 5 grid steps: the n-th power is binomial, and no other point has mass.
    mass = np.zeros(2**20)
    mass[[1, 5]] = 0.25, 0.75
    found = independent.fft.irfft(independent.fft.rfft(mass) ** steps, len(mass))
    exact = np.zeros(len(mass))
    k = np.arange(steps + 1)
    exact[steps + 4 * k] = stats.binom.pmf(k, steps, 0.75)
    for first in (0, steps, 4 * steps, 4 * steps + 8 * int(math.sqrt(steps))):
        wrong = abs(float(found[first:].sum() - exact[first:].sum()))
        assert wrong < independent.ROUND_OFF * steps


def test_a_delta_beyond_float64_is_refused():
    query = SampledGaussian(1.0, 0.001, 10000)
    with pytest.raises(ValueError, match='too small'):
        epsilon_bounds([query], 1e-12)


def test_nothing_costs_nothing():
    assert epsilon_bounds([], DELTA) == (0.0, 0.0)


@functools.cache
def exact_epsilon(query):
    return epsilon_pld(event_of(query), DELTA)


@pytest.mark.parametrize('wrong', ['one direction', 'no mean', 'half the noise'])
def test_a_wrong_accountant_would_be_noticed(wrong, monkeypatch):
    """What these tests would see if the third accountant had a plausible mistake."""
    query = SampledGaussian(0.8, 0.3, 30)
    exact = exact_epsilon(query)
    if wrong == 'no mean':
        plain = functools.partial(independent._mean_loss)
        monkeypatch.setattr(
            independent, '_mean_loss', lambda *a: plain(*a) + 1e-3
        )  # the mean of the rounding errors is 1e-3 off
    if wrong == 'half the noise':
        query = SampledGaussian(0.4, 0.3, 30)
    if wrong == 'one direction':
        made = independent._Composition([query], DELTA, 2**18)
        lower, upper = made._direction(True)
    else:
        lower, upper = epsilon_bounds([query], DELTA)
    assert not lower <= exact <= 1.001 * upper
