"""Contracts of the contrast features: what they tell, and that blank images have them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.networks.fixed import contrast, wavelets

contrast_features = jax.jit(contrast.contrast_features)
wavelet_features = jax.jit(wavelets.wavelet_features)


def pictures(side, channels, number=3):
    rng = np.random.default_rng(0)
    coarse = rng.uniform(0.2, 0.8, (number, 8, 8, channels))
    return np.float32(coarse.repeat(side // 8, axis=1).repeat(side // 8, axis=2))


def features(images, seed=0):
    _, side, _, channels = images.shape
    params = contrast.init_contrast(jax.random.key(seed), side, channels)
    return contrast_features(jnp.asarray(images), params)


@pytest.mark.parametrize('channels', [pytest.param(1, marks=pytest.mark.slow), 3])
def test_half_the_contrast_is_told_where_wavelets_hardly_see_it(channels):
    strong = pictures(32, channels)
    weak = 0.5 + (strong - 0.5) / 2

    def gap(rows):
        return np.linalg.norm(rows(strong) - rows(weak)) / np.linalg.norm(rows(strong))

    hardly = gap(lambda x: np.asarray(wavelet_features(2 * x - 1)))
    assert gap(lambda x: np.asarray(features(x))) > 2 * hardly


def test_each_statistic_of_each_channel_is_told():
    images = pictures(16, 3)
    for channel in range(3):
        brighter, flatter, smoother = (images.copy() for _ in range(3))
        brighter[..., channel] += 0.2
        flatter[..., channel] = images[..., channel].mean()
        smoother[..., channel] = np.sort(images[..., channel].reshape(3, -1)).reshape(
            3, 16, 16
        )  # the same mean and spread
        for changed in (brighter, flatter, smoother):
            assert np.linalg.norm(features(changed) - features(images)) > 1


def test_statistics_do_not_depend_on_how_fine_pixels_are():
    images = pictures(16, 3)
    mean, spread, _ = np.split(contrast._statistics(images), 3, axis=1)
    finer = images.repeat(2, axis=1).repeat(2, axis=2)
    finer_mean, finer_spread, _ = np.split(contrast._statistics(finer), 3, axis=1)
    np.testing.assert_allclose(finer_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(finer_spread, spread, rtol=1e-5)


@pytest.mark.parametrize('grey', [0.0, 0.5, 1.0])
def test_a_grey_image_has_finite_features_and_gradient(grey):
    blank = jnp.full((1, 16, 16, 3), grey)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(features(x) ** 2)))(blank)
    assert jnp.isfinite(gradient).all()
    assert jnp.isfinite(features(blank)).all()


# --- hues -------------------------------------------------------------------------------


@pytest.mark.parametrize('side', [16, 28, 32, 64])
def test_grey_images_have_no_hues_and_colours_have_as_many_columns_as_said(side):
    for channels in (1, 3):
        made = features(np.zeros((2, side, side, channels), np.float32))
        assert made.shape == (2, contrast.num_features(channels))


def stained(images):
    """A quarter of each image in another hue, as bright as it was."""
    made = images.copy()
    made[:, :16, :16] += np.float32([0.2, 0, -0.2])
    return made


def test_a_stain_is_told_where_wavelets_and_brightness_hardly_see_it():
    """Photographs of one kind have hues that vary little about any place."""
    rng = np.random.default_rng(1)
    images = pictures(32, 1, 40).repeat(3, axis=3) + rng.normal(0, 0.02, (40, 1, 1, 3))
    images = np.float32(images)

    def gap(rows):
        own, other = rows(images), rows(stained(images))
        spread = np.linalg.norm(own[::2].mean(axis=0) - own[1::2].mean(axis=0))
        return np.linalg.norm(own.mean(axis=0) - other.mean(axis=0)) / spread

    assert gap(lambda x: np.asarray(features(x))[:, contrast.COLUMNS :]) > 3 * gap(
        lambda x: np.asarray(wavelet_features(2 * x - 1))
    )


def test_rough_hues_are_told_below_rough_brightness():
    """In red, green and blue each statistic is mostly of brightness."""
    rng = np.random.default_rng(2)
    images = pictures(32, 1, 40).repeat(3, axis=3)
    noise = rng.normal(0, 0.03, images.shape[:3])
    hue = images + noise[..., None] * np.float32([1, 0, -1])
    gap = np.linalg.norm(
        np.asarray(features(np.float32(hue)))[:, : contrast.COLUMNS].mean(axis=0)
        - np.asarray(features(np.float32(images)))[:, : contrast.COLUMNS].mean(axis=0)
    )
    assert gap > 7  # 4.8 by statistics of red, green and blue


def of_hues(place, number=400, seed=3):
    """Grey images with squares of random hues at some places, of one variance in all."""
    rng = np.random.default_rng(seed)
    strengths = rng.normal(0, 0.08, (number, 8, 8)) * place / np.sqrt(np.mean(place))
    squares = strengths.repeat(4, axis=1).repeat(4, axis=2)[..., None]
    return np.float32(0.5 + squares * np.float32([1, 0, -1]))


def test_windows_tell_where_hues_vary_and_cosines_of_the_whole_map_do_not():
    centre = np.pad(np.ones((4, 4)), 2)
    there, elsewhere = (
        np.asarray(features(of_hues(place)))[:, contrast.COLUMNS :].mean(axis=0)
        for place in (centre, 1 - centre)
    )
    gaps = np.square(there - elsewhere)
    whole, windows = np.split(gaps, [contrast.HUE_COLUMNS])
    assert windows.mean() > 10 * whole.mean()


def test_a_window_is_of_neighbouring_places_and_lies_anywhere():
    made = contrast._of_windows(jax.random.key(0), 8)['directions']
    seen = np.asarray(made != 0).reshape(8, 8, 2, -1)
    assert (seen.sum(axis=(0, 1)) == contrast.WINDOW**2).all()
    down, right, _, _ = np.nonzero(seen)
    assert set(down) == set(right) == set(range(8))
    for column in np.moveaxis(seen[..., 0, :], -1, 0):
        rows, columns = np.nonzero(column)
        assert np.ptp(rows) == np.ptp(columns) == contrast.WINDOW - 1
