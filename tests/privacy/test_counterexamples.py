"""The examples of docs/explanation/published_proofs.md, computed."""

import math

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from dpaf_jax.methods.g_pate import data_dependent
from dpaf_jax.privacy.accounting import epsilon_rdp
from dpaf_jax.privacy.clipping import clipped_gradient_sum

pytestmark = pytest.mark.usefixtures('optimised')

ONE = (jnp.float32(1), jnp.float32(1))
ZERO = (jnp.float32(1), jnp.float32(0))


def clipped_sum(terms, bound):
    return sum(math.copysign(min(abs(term), bound), term) for term in terms)


def least_delta(p, q, epsilon):
    """Of two laws on the same points, by either as the first."""
    p, q = np.asarray(p), np.asarray(q)
    return max(
        np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))
    )


def test_hidden_state_moves_a_step_that_did_not_sample_the_record():
    def loss(w, h, record):
        x, y = record
        return (h * w * x - y) ** 2 / 2

    def second_query(first_batch):
        w, h = jnp.float32(1), jnp.float32(0)
        h = h - sum(jax.grad(loss, argnums=1)(w, h, record) for record in first_batch)
        units = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[ZERO] * 24)
        return clipped_gradient_sum(
            lambda w, record: loss(w, h, record),
            w,
            units,
            jnp.zeros(24, bool),
            l2_clip_norm=1.0,
            grid=None,
        )

    assert second_query([]) == second_query([ZERO]) == 0
    assert second_query([ONE]) == pytest.approx(24, rel=1e-4)


@pytest.mark.parametrize('number', [2, 24, 1000])
def test_one_record_turns_every_gradient_through_the_aggregate(number):
    target, bound = number - 0.5, 0.5

    def query(records):
        aggregate = sum(records)
        return clipped_sum([(aggregate - target) * x for x in records], bound)

    moved = query([1.0] * number) - query([1.0] * (number - 1))
    assert moved == (2 * number - 1) * bound


def test_one_sample_for_two_mechanisms_is_amplified_once():
    def amplified(epsilon, q=0.01):
        return math.log1p(q * math.expm1(epsilon))

    assert amplified(5) == pytest.approx(0.906, abs=0.0005)
    assert 2 * amplified(5) == pytest.approx(1.81, abs=0.005)
    assert amplified(10) == pytest.approx(5.40, abs=0.005)


def test_without_replacement_a_record_that_comes_pushes_another_out():
    bound = 3.0
    batches = [[-bound], [bound]]  # of {a, b}, one record each; {a} has only the first
    assert max(abs(sum(batch) - (-bound)) for batch in batches) == 2 * bound


def test_dpgen_releases_what_its_neighbour_cannot():
    for epsilon in (0.01, 1.0, 10.0):
        own = math.exp(epsilon) / (math.exp(epsilon) + 1)
        releases_it = 1 - (1 - own) * own  # by the second record, or by the first
        assert releases_it >= 0.75
    noisy, chosen, scale = 0.9003, 0.9, 0.01
    direction = (noisy - chosen) / scale**2
    assert noisy - scale**2 * direction == pytest.approx(chosen, abs=1e-12)


def test_dpba_noise_on_the_cost_leaves_the_gradient_bare():
    x = jnp.array([3.0, 4.0])

    def multiplied(theta, noise):  # Algorithm 1, line 11, fake 0
        return noise * jnp.vdot(theta, x)

    def added(theta, noise):  # Algorithm 2
        return jnp.vdot(theta, x) + noise

    theta = jnp.ones(2)
    for noise in (-7.0, 0.1, 1e3):
        made = np.asarray(jax.grad(multiplied)(theta, noise))
        direction = made / np.linalg.norm(made) * np.sign(noise)
        np.testing.assert_allclose(direction, [0.6, 0.8], rtol=1e-6)
        np.testing.assert_array_equal(jax.grad(added)(theta, noise), x)
    assert multiplied(theta, 1e3) != 0 == multiplied(jnp.zeros(2), 1e3)


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 10.0])
def test_an_exact_mean_in_the_first_weights_has_delta_one(epsilon):
    tenths = np.arange(-300, 311)

    def exact(distance):
        return (distance == 0).astype(float)

    def geometric(distance):
        return np.exp(-epsilon * abs(distance)) * math.tanh(epsilon / 2)

    def moved(law):  # p3gm: of ten images of one pixel one is emptied
        images = [1.0] * 10, [1.0] * 9 + [0.0]
        return least_delta(
            *(law(tenths - round(sum(each))) for each in images), epsilon
        )

    assert moved(exact) == 1
    assert moved(geometric) == pytest.approx(0, abs=1e-9)


def test_a_rate_by_class_size_moves_the_draws_of_all_others():
    points, epsilon = np.linspace(-9, 9, 4001), 0.5

    def law(rates, rows):  # of the sum of those that are drawn, with noise of 1
        chances, sums = np.ones(1), np.zeros(1)
        for rate, row in zip(rates, rows, strict=True):
            chances = np.concatenate([chances * (1 - rate), chances * rate])
            sums = np.concatenate([sums, sums + row])
        return chances @ stats.norm.pdf(points, sums[:, None]) * (points[1] - points[0])

    def charged(rate):
        return least_delta(law([], []), law([rate], [1.0]), epsilon)

    def emptied(rate_afterwards, row):  # of a class of two, of whom one is expected
        both = law([0.5, 0.5], [1.0, row])
        return least_delta(both, law([rate_afterwards], [1.0]), epsilon)

    assert emptied(0.5, -1.0) < charged(0.5)  # a rate for all
    assert emptied(0.5, 0.0) == pytest.approx(0, abs=1e-9)  # who adds nothing
    # ndpdc: of the class of one, too, one is expected.
    assert emptied(1.0, -1.0) == pytest.approx(0.246, abs=5e-4)
    assert charged(0.5) == pytest.approx(0.080, abs=5e-4)
    assert charged(1.0) == pytest.approx(0.238, abs=5e-4)
    assert emptied(1.0, 0.0) == pytest.approx(0.080, abs=5e-4)


def test_an_epsilon_by_votes_tells_neighbours_apart():
    def stated(*votes):  # after a hundred such votes of a thousand teachers
        histograms = np.tile(votes, (100, 1))
        answered = np.ones(100, bool)
        total = data_dependent.renyi_of_queries(histograms, answered, 40.0, None)
        return data_dependent.epsilon(total, 1e-5)

    assert stated(600, 400) == pytest.approx(0.290, abs=5e-4)
    assert stated(599, 401) == pytest.approx(0.297, abs=5e-4)
    assert stated(501, 499) == stated(500, 500)  # what any votes could cost


def test_a_sum_that_is_noised_again_at_each_use_is_known_as_often():
    rate, noise, sums, uses, delta = 0.01, 4.2969, 10_000, 20, 1e-5
    seen = np.random.default_rng(0).normal(size=uses)
    each = ((seen**2 - (seen - 1) ** 2) / (2 * noise**2)).sum()
    mean, narrow = seen.mean(), noise / math.sqrt(uses)
    assert each == pytest.approx((mean**2 - (mean - 1) ** 2) / (2 * narrow**2))

    def event(scale):
        sampled = dp_accounting.PoissonSampledDpEvent(
            rate, dp_accounting.GaussianDpEvent(scale)
        )
        return dp_accounting.SelfComposedDpEvent(sampled, sums)

    def at_least(scale):
        one = privacy_loss_distribution.from_gaussian_mechanism(
            scale,
            sampling_prob=rate,
            pessimistic_estimate=False,
            use_connect_dots=False,
            value_discretization_interval=4e-4,
        )
        return one.self_compose(sums).get_epsilon_for_delta(delta)

    assert epsilon_rdp(event(noise), delta) <= 1  # dosser, had it kept the noisy sums
    assert epsilon_rdp(event(narrow), delta) == pytest.approx(7.3, abs=0.1)
    assert at_least(narrow) > 4
