"""Optimisers: what survives where the loss changes under way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.optimizers import make_optimizer, restarted

RATE, STEPS = 0.01, 1000


def halfway(optimizer):
    """The state after half the steps, on gradients of length about 1."""
    draws = np.random.default_rng(0).normal(size=(STEPS // 2, 3)).astype(np.float32)

    def step(state, gradient):
        return optimizer.update(gradient, state)[1], None

    return jax.lax.scan(step, optimizer.init(jnp.zeros(3)), jnp.asarray(draws))[0]


def longest(optimizer, state, gradient):
    """The largest entry of the next ten updates."""
    found = []
    for _ in range(10):
        updates, state = optimizer.update(gradient, state)
        found.append(float(jnp.abs(updates).max()))
    return max(found)


def test_a_steeper_loss_does_not_begin_with_longer_steps():
    optimizer = make_optimizer('adam', RATE, STEPS)
    state, steep = halfway(optimizer), jnp.full(3, 1e3)
    half = RATE * (1 + 0.02) / 2  # where the cosine is by now
    assert longest(optimizer, state, steep) > 10 * half
    fresh = restarted(state, optimizer.init(jnp.zeros(3)))
    assert longest(optimizer, fresh, steep) == pytest.approx(half, rel=1e-3)


@pytest.mark.parametrize('name', ['adam', 'momentum', 'sgd'])
@pytest.mark.parametrize('steps', [0, STEPS])
def test_nothing_but_the_schedule_survives(name, steps):
    optimizer = make_optimizer(name, RATE, steps)
    start, state = optimizer.init(jnp.zeros(3)), halfway(optimizer)
    again = restarted(state, start)
    moments = [np.abs(leaf).max() for leaf in jax.tree.leaves(again) if leaf.shape]
    assert not any(moments)
    if steps:
        assert again[1].count == STEPS // 2
