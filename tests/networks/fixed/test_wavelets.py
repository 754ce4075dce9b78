"""Contracts of the wavelets: shapes, norms, gradients, and what they are for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from dpaf_jax.networks.fixed import wavelets
from dpaf_jax.networks.images import reduced

wavelet_features = jax.jit(wavelets.wavelet_features)


def images(number, side, channels, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (number, side, side, channels)).astype(np.float32)


@pytest.mark.parametrize(
    ('side', 'channels'),
    [
        (8, 1),
        (33, 3),
        *(pytest.param(*s, marks=pytest.mark.slow) for s in [(8, 3), (33, 1)]),
    ],
)
def test_shape_and_norm(side, channels):
    made = wavelet_features(images(4, side, channels))
    assert made.shape == (4, wavelets.num_features(side, channels))
    norms = np.linalg.norm(np.float64(made), axis=1)
    assert (norms <= 1).all() and (norms > 0.5).all()


@pytest.mark.parametrize('grey', [-1.0, 0.0, 1.0])
def test_a_grey_image_has_finite_features_and_gradient(grey):
    blank = jnp.full((1, 28, 28, 1), grey)
    slope = jax.jit(jax.grad(lambda x: jnp.sum(wavelet_features(x) ** 2)))
    gradient = slope(blank)
    assert jnp.isfinite(gradient).all()
    assert jnp.linalg.norm(wavelet_features(blank)) <= 1


def test_each_images_features_are_its_own():
    batch = images(5, 16, 1)
    one = wavelet_features(batch[2:3])
    np.testing.assert_allclose(wavelet_features(batch)[2:3], one, atol=1e-5)


@pytest.mark.parametrize(('side', 'width'), [(64, 1), (96, 1), (128, 1), (128, 2)])
def test_texture_that_averaging_hides_is_seen(side, width):
    smooth = np.zeros((1, side, side, 1), np.float32)
    smooth[:, side // 4 : side // 2, side // 8 : side // 2] = 0.6
    cells = np.indices((side, side)) // width
    grid = smooth + 0.3 * (cells.sum(axis=0) % 2 * 2 - 1)[None, ..., None]
    if side != 96:  # of squares of 3 x 3 the mean is not quite that
        np.testing.assert_allclose(reduced(grid), reduced(smooth), atol=1e-6)
    gap = wavelet_features(grid) - wavelet_features(smooth)
    assert np.linalg.norm(gap) > 0.3


def test_a_stroke_that_moves_changes_them_less_than_the_pixels():
    stroke = np.full((2, 28, 28, 1), -1, np.float32)
    stroke[0, 8:20, 12:14] = stroke[1, 8:20, 13:15] = 1

    def cosine(rows):
        a, b = np.asarray(rows)
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    assert cosine(wavelet_features(stroke)) > 0.8
    assert cosine((stroke + 1).reshape(2, -1)) < 0.6


@pytest.mark.slow
@pytest.mark.usefixtures('optimised')
def test_a_linear_classifier_learns_more_from_them_than_from_pixels():
    digits = load_digits()
    larger = digits.images.repeat(2, axis=1).repeat(2, axis=2)[..., None]
    pictures = np.float32(larger / 8 - 1)

    def accuracy(rows):
        model = LogisticRegression(max_iter=2000, C=100)
        model.fit(rows[:60], digits.target[:60])
        return model.score(rows[60:], digits.target[60:])

    waves = accuracy(np.asarray(wavelet_features(pictures)))
    pixels = accuracy(pictures.reshape(len(pictures), -1))
    assert waves > pixels + 0.02
