"""Squares of an image: as many as said, bounded, and grain is not taken for edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.networks.fixed.texture import (
    _wave,
    init_texture,
    num_features,
    texture_features,
)


def textures(images, seed=0):
    """Of [B, H, W, C] images in [0, 1]."""
    _, side, _, channels = images.shape
    params = init_texture(jax.random.key(seed), side, channels)
    return jax.jit(texture_features)(jnp.asarray(images, jnp.float32), params)


@pytest.mark.parametrize(
    'shape',
    [
        *((4, 4, 1), (9, 9, 3), (28, 28, 1)),
        *(
            pytest.param(shape, marks=pytest.mark.slow)
            for shape in [(8, 8, 1), (64, 64, 3), (128, 128, 1)]
        ),
    ],
)
def test_any_size_has_the_features_that_it_says(shape):
    images = np.random.default_rng(0).random((2, *shape))
    features = textures(images)
    assert features.shape == (2, num_features(shape[0]))
    assert float(jnp.abs(features).max()) <= 2
    np.testing.assert_allclose(textures(np.zeros((1, *shape))), 0, atol=1e-4)


def test_a_wave_is_nearly_a_cosine_of_any_phase():
    turns = np.linspace(-3, 3, 1001)
    np.testing.assert_allclose(_wave(turns), np.cos(2 * np.pi * turns), atol=0.021)


def checks(rng, number):
    """Light and dark halves with a sharp edge: [B, 28, 28, 1]."""
    images = np.full((number, 28, 28, 1), 0.3)
    for image in images:
        image[:, rng.integers(8, 20) :] = 0.7
    return images


def grain(rng, number):
    """As rough as `checks` on average, everywhere the same."""
    rough = np.abs(np.diff(checks(rng, 100), axis=2)).mean()
    noise = rng.normal(size=(number, 28, 28, 1))
    return 0.5 + noise * rough / np.abs(np.diff(noise, axis=2)).mean()


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_grain_is_told_from_a_sharp_edge_of_the_same_mean_difference(seed):
    rng = np.random.default_rng(seed)
    edges, grains = textures(checks(rng, 40), seed), textures(grain(rng, 40), seed)
    within = jnp.linalg.norm(edges[::2].mean(axis=0) - edges[1::2].mean(axis=0))
    between = jnp.linalg.norm(edges.mean(axis=0) - grains.mean(axis=0))
    assert between > 4 * within
