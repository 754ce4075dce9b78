"""On a GPU, whose products may be TF32's: sums stay exact, clips hold.

JAX_PLATFORMS=cuda,cpu .venv/bin/python -m pytest -m gpu
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.networks.layers import convolve
from dpaf_jax.privacy.clipping import clip_vector, clipped_gradient_sum
from dpaf_jax.privacy.grid import FACTOR_BITS, Grid

pytestmark = pytest.mark.gpu
BOUND = 1.0


@pytest.fixture(autouse=True)
def on_the_card():
    if jax.default_backend() != 'gpu':
        pytest.skip('there is no GPU, or JAX does not see it')


def test_sums_on_the_grid_are_those_of_whole_numbers():
    grid = Grid.of(BOUND, 0.5)
    values = np.random.default_rng(0).normal(size=(5000, 37)).astype(np.float32)
    exact = np.trunc(values.astype(np.float64) / grid.spacing).astype(np.int64)
    exact = np.clip(exact, -(2**20), 2**20).sum(axis=0)
    found = jax.jit(lambda x: grid.sum(x))(values)
    np.testing.assert_array_equal(found.units(), exact)


def test_products_on_the_grid_are_those_of_whole_numbers():
    """TF32 has eleven bits: factors of eight bits fit, sums of products do not."""
    grid, rng = Grid.of(BOUND, 0.5), np.random.default_rng(0)
    left = rng.normal(size=(3000, 64)).astype(np.float32)
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    right = rng.uniform(-0.3, 0.3, size=(3000, 10)).astype(np.float32)
    found = jax.jit(lambda a, b: grid.outer_sum(a, b, BOUND))(left, right).units()
    # Whatever the two factors' grids are, their products add up in whole numbers.
    host = jax.local_devices(backend='cpu')[0]
    on_host = jax.jit(lambda a, b: grid.outer_sum(a, b, BOUND))(
        jax.device_put(left, host), jax.device_put(right, host)
    )
    np.testing.assert_array_equal(found, on_host.units())
    plain = left.astype(np.float64).T @ right
    assert np.max(np.abs(found * grid.spacing - plain)) < 3000 * 2.0**-FACTOR_BITS


@pytest.mark.parametrize('magnitude', [1e-30, 1e-3, 1.0, 1e3, 1e17])
def test_a_clip_holds(magnitude):
    rng = np.random.default_rng(0)
    vectors = magnitude * rng.normal(size=(200, 4097)).astype(np.float32)
    clipped = jax.jit(jax.vmap(lambda v: clip_vector(v, BOUND)))(vectors)
    norms = np.linalg.norm(np.asarray(clipped, np.float64), axis=1)
    assert np.max(norms) <= BOUND


def test_one_image_moves_a_sum_of_gradients_by_at_most_the_bound():
    grid, rng = Grid.of(BOUND, 0.5), np.random.default_rng(0)
    kernel = rng.normal(size=(4, 4, 3, 16)).astype(np.float32)
    images = rng.normal(size=(64, 32, 32, 3)).astype(np.float32)

    def loss(kernel, image):
        maps = convolve(image[None], kernel, (2, 2), 'SAME')
        return jnp.sum(jnp.tanh(maps) ** 2)

    @jax.jit
    def sums(is_padding):
        return clipped_gradient_sum(
            loss, kernel, images, is_padding, l2_clip_norm=BOUND, grid=grid
        )

    everybody = np.zeros(64, bool)
    whole = sums(everybody).units()
    for gone in (0, 17, 63):
        without = sums(everybody | (np.arange(64) == gone)).units()
        moved = np.linalg.norm((whole - without).astype(np.float64)) * grid.spacing
        assert 0.9 * BOUND < moved <= BOUND
