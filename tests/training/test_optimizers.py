"""Optimisers: how far one step may go."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.training.optimizers import make_optimizer

RATE, STEPS = 0.01, 1000


def longest_steps(optimizer):
    """The largest entries of steps on gradients of about 1, then of ten on steep ones."""
    flat = np.random.default_rng(0).normal(size=(STEPS // 2, 3)).astype(np.float32)
    steep = np.full((10, 3), 1e3, np.float32)

    def step(state, gradient):
        updates, state = optimizer.update(gradient, state)
        return state, jnp.abs(updates).max()

    _, found = jax.lax.scan(
        step, optimizer.init(jnp.zeros(3)), np.concatenate([flat, steep])
    )
    return float(found[:-10].max()), float(found[-10:].max())


def test_adam_outruns_its_rate_where_gradients_grow_at_once():
    assert longest_steps(make_optimizer('adam', RATE))[1] > 10 * RATE


@pytest.mark.parametrize('name', ['adam', 'momentum', 'sgd'])
def test_a_bounded_step_is_never_longer_than_the_rate(name):
    found = longest_steps(make_optimizer(name, RATE, bounded=True))
    assert found == pytest.approx((RATE, RATE), rel=1e-3)
    late = longest_steps(make_optimizer(name, RATE, STEPS, bounded=True))[1]
    assert late == pytest.approx(RATE * (1 + 0.02) / 2, rel=0.02)  # half the cosine
