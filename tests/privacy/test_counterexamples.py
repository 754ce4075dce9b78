"""The examples of docs/explanation/privacy.md, computed: where the published proofs fail."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.privacy.clipping import clipped_gradient_sum

pytestmark = pytest.mark.usefixtures('optimised')

ONE = (jnp.float32(1), jnp.float32(1))
ZERO = (jnp.float32(1), jnp.float32(0))


def clipped_sum(terms, bound):
    return sum(math.copysign(min(abs(term), bound), term) for term in terms)


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
