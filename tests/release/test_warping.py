"""Contracts of the warp: by how much pixels move, how smoothly, and each image by its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.release.samplers.mending import warp

warped = jax.jit(warp.warped, static_argnums=2)


def ramps(number, side):
    """Images whose values are their columns and rows: they show where each came from."""
    columns = np.broadcast_to(np.arange(side, dtype=np.float32), (number, side, side))
    return jnp.asarray(np.stack([columns, columns.transpose(0, 2, 1)], axis=-1))


def moves(side, most, number=400):
    """[number, inner, inner, 2] pixels by which columns and rows moved."""
    images = ramps(number, side)
    inner = slice(side // 3, side - side // 3)  # where no border cuts a move
    made = np.asarray(warped(jax.random.key(0), images, most) - images)
    return made[:, inner, inner]


@pytest.mark.parametrize(
    ('side', 'most'),
    [(28, 0.04), (28, 0.08), pytest.param(64, 0.04, marks=pytest.mark.slow)],
)
def test_pixels_move_by_up_to_that_share_of_the_side(side, most):
    far = moves(side, most)
    # The mean square of a strength that is uniform from 0 on is a third of the largest's.
    assert far.std() == pytest.approx(most * side / 3**0.5, rel=0.1)
    assert abs(far.mean()) < 0.1 * most * side
    rows, columns = far[..., 0].ravel(), far[..., 1].ravel()
    assert abs(np.corrcoef(rows, columns)[0, 1]) < 0.1


def test_images_differ_in_strength():
    strengths = np.sqrt(np.mean(np.square(moves(28, 0.08)), axis=(1, 2, 3)))
    assert np.quantile(strengths, 0.1) < 0.2 * np.quantile(strengths, 0.9)


def test_neighbours_move_together_and_images_apart():
    far = moves(28, 0.04)[..., 0]
    steps = np.diff(far, axis=1)
    assert steps.std() < 0.25 * far.std()
    assert abs(np.corrcoef(far[0::2, 5, 5], far[1::2, 5, 5])[0, 1]) < 0.25


def test_no_strength_leaves_images_as_they_are():
    images = ramps(3, 8)
    assert np.array_equal(warped(jax.random.key(0), images, 0.0), images)


@pytest.mark.parametrize('shape', [(2, 8, 8, 1), (3, 28, 28, 3)])
def test_values_stay_within_those_of_the_image(shape):
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    made = np.asarray(warped(jax.random.key(0), jnp.asarray(images), 0.2))
    assert made.shape == shape and made.dtype == np.float32
    assert images.min() - 1e-6 <= made.min() and made.max() <= images.max() + 1e-6
    assert not np.allclose(made, images, atol=0.1)


def test_coins_decide():
    images = ramps(2, 8)
    one, two = (warped(jax.random.key(i), images, 0.1) for i in (0, 1))
    assert not np.allclose(one, two, atol=1e-3)
    assert np.array_equal(one, warped(jax.random.key(0), images, 0.1))


def test_fine_stripes_keep_their_contrast():
    """Which bilinear interpolation would take a sixth of."""
    stripes = np.sin(2 * np.pi * np.arange(64) / 4).astype(np.float32)  # 4 pixels each
    images = jnp.asarray(np.broadcast_to(stripes[:, None], (20, 64, 64, 1)))
    made = np.asarray(warped(jax.random.key(0), images, 0.04))[:, 16:48, 16:48]
    lost = 1 - made.std(axis=(1, 2, 3)).mean() / float(jnp.std(images))
    assert lost < 0.1
