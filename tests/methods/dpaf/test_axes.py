"""Taps along the axes of random pictures: which axes, what bound, for which images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf import axes
from dpaf_jax.methods.dpaf.taps import features
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout
from dpaf_jax.networks.fixed import dead_leaves

NUM, COLUMNS, POWER = 400, 30, 0.125
TAPS = 'count,contrast,wavelet,texture,shape'


@pytest.fixture
def few(monkeypatch):
    """Few pictures and axes: a matter of a second."""
    monkeypatch.setattr(axes, 'PICTURES', 60)
    monkeypatch.setattr(axes, 'MOST', 10)


@pytest.fixture(scope='module')
def spread():
    """[NUM, COLUMNS] about 5, of variance 1 / i^2 along turned axes [COLUMNS, COLUMNS]."""
    rng = np.random.default_rng(0)
    turned, _ = np.linalg.qr(rng.normal(size=(COLUMNS, COLUMNS)))
    lengths = 1 / np.arange(1, COLUMNS + 1)
    values = rng.normal(size=(NUM, COLUMNS)) * lengths @ turned.T
    return (5 + values).astype(np.float32), turned, lengths


@pytest.mark.parametrize('number', [NUM, 20])
def test_axes_are_the_principal_ones_of_the_pictures_longest_last(
    spread, number, monkeypatch
):
    """Whether there are more pictures than columns or fewer."""
    monkeypatch.setattr(axes, 'MOST', 10)
    rows = spread[0][:number]
    made = axes.init_axes(jnp.asarray(rows), POWER)
    assert made['directions'].shape == (COLUMNS, 10)
    np.testing.assert_allclose(made['mean'], rows.mean(axis=0), rtol=1e-5)
    _, lengths, principal = np.linalg.svd(rows - rows.mean(axis=0))
    units = made['directions'] / np.linalg.norm(made['directions'], axis=0)
    alike = np.abs(np.sum(units[:, ::-1] * principal[:10].T, axis=0))
    np.testing.assert_allclose(alike, 1, atol=1e-2)
    variances = lengths[:10] ** 2 / number
    scales = np.linalg.norm(made['directions'], axis=0)[::-1]
    wanted = (variances + axes.LEAST * variances.mean()) ** -POWER
    np.testing.assert_allclose(scales / scales[0], wanted / wanted[0], rtol=1e-2)


def test_most_pictures_are_within_the_bound_and_no_row_is_beyond(spread):
    rows, *_ = spread
    made = axes.init_axes(jnp.asarray(rows), POWER)
    norms = np.linalg.norm(axes.along(rows, made), axis=1)
    assert norms.max() <= 1 + 1e-6
    assert (norms < 0.999).mean() == pytest.approx(axes.WITHIN / 100, abs=0.01)
    near = axes.along(rows, axes.init_axes(jnp.asarray(rows), POWER, within=0.5))
    shorter = np.linalg.norm(near, axis=1)
    np.testing.assert_allclose(shorter[norms < 0.999], norms[norms < 0.999] / 2, 1e-4)
    far = 1e4 * np.random.default_rng(1).normal(size=(9, COLUMNS)).astype(np.float32)
    np.testing.assert_allclose(np.linalg.norm(axes.along(far, made), axis=1), 1, 1e-5)
    gradient = jax.grad(lambda x: jnp.sum(axes.along(x[None], made)))(made['mean'])
    assert np.isfinite(gradient).all()  # where a row is at their mean


def test_noise_is_shorter_where_images_are_alike(spread):
    """The noise of a mean within the bound, along the true axes: by what they vary there."""
    rows, turned, _ = spread
    made = axes.init_axes(jnp.asarray(rows), POWER)
    back = np.linalg.pinv(made['directions'])  # from a row to what was read
    noise = np.linalg.norm(back @ turned, axis=0)
    as_it_is = np.percentile(np.linalg.norm(rows, axis=1), axes.WITHIN)
    assert noise.max() < as_it_is / 5  # what all share takes nothing of the bound
    assert noise[-5:].mean() < noise[:5].mean() * 0.7


def test_they_are_of_public_coins_and_of_what_the_config_asks(few):
    for asked, records, has in (
        ('none', 10, False),
        ('few', 10**5, False),
        ('few', 10, True),
        ('all', 10**5, True),
    ):
        config = tiny.config(
            **tiny.ONE_SHOT | {'dpaf__taps': TAPS},
            dpaf__axes=asked,
            data__num_examples=records,
        )
        shapes = jax.eval_shape(
            lambda key, c=config: features.init_taps(c, key, {}), jax.random.key(0)
        )
        read = ['contrast', 'texture', 'wavelet'] if has else []
        assert sorted(shapes.get('axes', {})) == read
        sizes = {block.name: block.size for block in make_tap_layout(config).blocks}
        assert all((sizes[tap] == 10) == has for tap in ('wavelet', 'texture'))
        assert sizes['shape'] == 2048 and sizes['count'] == 1


def test_a_row_has_the_columns_that_the_layout_says(few):
    config = tiny.config(
        **tiny.ONE_SHOT | {'dpaf__taps': TAPS}, dpaf__axes='all', data__image_size=16
    )
    params = jax.jit(lambda key: features.init_taps(config, key, {}))(jax.random.key(0))
    images = np.random.default_rng(1).uniform(-1, 1, (5, 16, 16, 1)).astype(np.float32)
    layout = make_tap_layout(config)

    @jax.jit
    def read(params, images):
        return layout.join(features.fixed_features(params, images, 'wavelet', ''))

    rows = read(params, images)
    assert rows.shape == (5, layout.size)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-5


def test_random_pictures_are_pictures_of_any_size_grey_or_coloured():
    for side, channels in ((16, 1), (24, 3)):
        made = np.asarray(dead_leaves.pictures(jax.random.key(0), 8, side, channels))
        assert made.shape == (8, side, side, channels)
        assert np.isfinite(made).all() and np.abs(made).max() <= 1
        assert np.std(made, axis=(1, 2, 3)).min() > 0.005
        assert len({picture.tobytes() for picture in made}) == 8
