"""Contracts of non-local means: grain goes, edges and what is smooth stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.release.samplers.mending.denoise import REACH, nonlocal_means


def grainy(images, deviation):
    noise = np.random.default_rng(0).normal(scale=deviation, size=images.shape)
    return jnp.asarray(images + noise, jnp.float32)


def edges(side=28):
    """[1, side, side, 1]: black on the left, white on the right."""
    image = np.where(np.arange(side) < side // 2, -1.0, 1.0)
    return np.broadcast_to(image, (side, side))[None, ..., None].astype(np.float32)


def test_most_of_the_grain_goes_and_an_edge_stays():
    clean, deviation = edges(), 0.05
    made = np.asarray(nonlocal_means(grainy(clean, deviation), 2 * deviation)) - clean
    assert made.std() < deviation / 3
    beside = made[0, :, [13, 14]]  # the columns on both sides of the edge
    assert np.abs(beside.mean(axis=1)).max() < deviation  # a blur would give a third


def test_each_pixel_is_the_weighted_mean_that_the_definition_gives():
    image = np.random.default_rng(0).uniform(-1, 1, (9, 9, 3)).astype(np.float32)
    strength, border = 0.8, REACH + 1
    padded = np.pad(image, (*2 * [(border, border)], (0, 0)), 'reflect')
    look = np.array([np.exp(-2), 1, np.exp(-2)])
    look = np.outer(look, look) / look.sum() ** 2

    def square(row, column):
        return padded[row - 1 : row + 2, column - 1 : column + 2]

    def mean(row, column):
        total = weights = 0.0
        for i in range(row - REACH, row + REACH + 1):
            for j in range(column - REACH, column + REACH + 1):
                unlike = np.square(square(i, j) - square(row, column)).mean(axis=2)
                far = (look * unlike).sum() / strength**2
                weight = np.exp(-max(far - 0.5, 0))
                total, weights = total + weight * padded[i, j], weights + weight
        return total / weights

    places = border + np.arange(9)
    wanted = np.array([[mean(row, column) for column in places] for row in places])
    made = nonlocal_means(jnp.asarray(image[None]), strength)
    np.testing.assert_allclose(made[0], wanted, atol=1e-3)


def test_an_image_is_a_function_of_itself_alone():
    images = jax.random.uniform(jax.random.key(0), (3, 16, 16, 1), minval=-1)
    together = nonlocal_means(images, 0.3)
    alone = jnp.concatenate([nonlocal_means(image[None], 0.3) for image in images])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_no_strength_leaves_images_as_they_are():
    images = jnp.asarray(edges(8))
    assert np.array_equal(nonlocal_means(images, 0.0), images)


@pytest.mark.parametrize('shape', [(2, 4, 4, 1), (3, 28, 28, 3)])
def test_values_stay_within_those_of_the_image(shape):
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    made = np.asarray(nonlocal_means(jnp.asarray(images), 0.5))
    assert made.shape == shape and made.dtype == np.float32
    assert images.min() - 1e-6 <= made.min() and made.max() <= images.max() + 1e-6
    assert not np.allclose(made, images, atol=0.1)
