"""The ε that the DPAF paper's own theorem states, against a plain implementation."""

import dataclasses
import math

import pytest
import tiny

from dpaf_jax.methods import dpaf
from dpaf_jax.privacy import published
from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.runtime.errors import UserError

DELTA = 1e-5


def make(name, prob, steps, sigma=0.0, sensitivity=1.0):
    return Mechanism(
        name=name,
        kind='',
        sampling_prob=prob,
        l2_sensitivity=sensitivity,
        steps=steps,
        expected_batch_size=1.0,
        capacity=1,
        noise_multiplier=sigma,
    )


def theorem_1(order, sigma):
    return order / (2 * sigma**2)


def theorem_3(order, prob, sigma):
    """Equation 5, term by term in Python's own numbers; exp(eps(inf)) is infinite."""

    def least(bound, power):
        return min(bound, math.inf**power)

    eps2 = theorem_1(2, sigma)
    inner = min(4 * (math.exp(eps2) - 1), math.exp(eps2) * least(2, 2))
    total = 1 + prob**2 * math.comb(order, 2) * inner
    for j in range(3, order + 1):
        grown = math.exp((j - 1) * theorem_1(j, sigma))
        total += prob**j * math.comb(order, j) * grown * least(2, j)
    return math.log(total) / (order - 1)


def theorem_5(mechanisms, delta, orders=range(2, 257)):
    """The smallest epsilon over the orders that floats can hold."""
    best = math.inf
    for order in orders:
        try:
            total = sum(
                m.steps * theorem_3(order, m.sampling_prob, m.noise_multiplier)
                for m in mechanisms
            )
        except OverflowError:
            break
        best = min(best, total + math.log(1 / delta) / (order - 1))
    return best


PARTS = (
    make('conv1', 0.01, 500, 2.0),
    make('conv2', 0.004, 300, 1.5),
    make('dpagg', 0.0005, 2400, 1.0, sensitivity=16.0),
)


@pytest.mark.parametrize('order', [2, 3, 8, 20])
@pytest.mark.parametrize(('prob', 'sigma'), [(0.01, 1.0), (0.1, 3.0), (0.0004, 0.6)])
def test_the_subsampled_bound_is_theorem_3(prob, sigma, order):
    made = published.rdp_subsampled(prob, sigma)[order - 2]
    assert made == pytest.approx(theorem_3(order, prob, sigma), rel=1e-9)


def test_without_subsampling_the_bound_is_the_gaussians():
    made = published.rdp_subsampled(1.0, 2.0)
    assert made[0] == theorem_1(2, 2.0)
    assert made[-1] == theorem_1(256, 2.0)


@pytest.mark.parametrize('delta', [1e-5, 1e-3])
def test_the_claimed_epsilon_is_theorem_5_over_all_parts(delta):
    expected = theorem_5(PARTS, delta)
    assert published.epsilon(PARTS, delta) == pytest.approx(expected, rel=1e-9)
    assert expected > theorem_5(PARTS[:2], delta)


def test_each_share_is_claimed_and_the_rest_fills_the_total():
    shares = {'conv1': 1.0, 'conv2': None, 'dpagg': 2.0}
    unsettled = [dataclasses.replace(m, noise_multiplier=0.0) for m in PARTS]
    settled = published.calibrate(unsettled, shares, 5.0, DELTA)
    assert [m.name for m in settled] == ['conv1', 'conv2', 'dpagg']
    conv1, _, dpagg = settled
    assert theorem_5([conv1], DELTA) == pytest.approx(1.0, rel=0.01)
    assert theorem_5([dpagg], DELTA) == pytest.approx(2.0, rel=0.01)
    assert theorem_5(settled, DELTA) == pytest.approx(5.0, rel=0.01)
    assert published.epsilon(settled, DELTA) <= 5.0


def test_a_share_below_what_the_theorem_can_state_is_refused():
    loud = dataclasses.replace(PARTS[0], noise_multiplier=published.MOST_NOISE)
    least = theorem_5([loud], DELTA)
    with pytest.raises(
        UserError, match=rf'published theorem .* {least:.2f}\d* at least'
    ):
        published.calibrate([PARTS[0]], {'conv1': 0.01}, 1.0, DELTA)
    published.calibrate([PARTS[0]], {'conv1': least + 1e-3}, 1.0, DELTA)


def test_a_random_conv1_is_not_charged_as_published():
    config = tiny.config(
        privacy__guarantee='as_published', dpaf__classifier__private='none'
    )
    assert 'conv1' not in tiny.plan(config)


def test_a_published_plan_claims_and_certifies_nothing():
    config = tiny.config(privacy__guarantee='as_published', privacy__epsilon=10.0)
    plan = dpaf.plan(config, tiny.NUM_EXAMPLES)
    assert plan.epsilon is plan.epsilon_rdp is None
    assert plan.guarantee.startswith('none (as published: ')
    claimed = theorem_5(plan.mechanisms, config.privacy.delta)
    assert plan.claimed_epsilon == pytest.approx(claimed, abs=1e-3)
    assert plan.claimed_epsilon <= 10.0
    fields = plan.to_json()
    assert fields['dp_event'] == {'class': 'NonPrivateDpEvent'}
    assert fields['claimed_epsilon'] == plan.claimed_epsilon


def test_a_published_plan_batches_as_printed():
    plan = tiny.plan(
        tiny.config(
            privacy__guarantee='as_published',
            dpaf__conv2__gradient='none',
        )
    )
    # The certified settings do not exist there: three mechanisms, no groups, one batch
    # size B = 4; conv2* looks at the mu = 2 latest batches.
    conv1, conv2, dpagg = plan.mechanisms
    assert conv1.num_groups == conv2.num_groups == 1
    assert conv2.expected_batch_size == 2 * dpagg.expected_batch_size == 8
    assert (conv1.capacity, conv2.capacity, dpagg.capacity) == (4, 8, 4)
