"""The cosine by products: its values, its slope, and that it stays within 1."""

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.networks.fixed.cosine import cosine


def test_it_is_a_cosine_of_any_angle():
    angles = np.linspace(-50, 50, 100_001).astype(np.float32)
    made = np.asarray(cosine(jnp.asarray(angles)))
    np.testing.assert_allclose(made, np.cos(angles.astype(np.float64)), atol=1e-5)
    few = np.abs(angles) < 4
    np.testing.assert_allclose(made[few], np.cos(angles[few]), atol=1e-6)
    assert np.abs(made).max() <= 1 + 1e-6


def test_its_slope_is_minus_the_sine():
    angles = jnp.linspace(-7, 7, 10_001)
    slope = jax.vmap(jax.grad(cosine))(angles)
    np.testing.assert_allclose(slope, -np.sin(np.asarray(angles)), atol=1e-5)
