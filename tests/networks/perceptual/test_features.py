"""Contracts of what learnt networks see: bounded, of each image alone, and things in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.networks.perceptual.features import (
    NETWORKS,
    network_features,
    num_features,
    with_squares,
)

EITHER = pytest.mark.parametrize('name', NETWORKS)


def marked(name, *more, slow=True):
    """A case that is slow for the network that takes seconds to compile."""
    is_slow = slow and name == 'perceptual'
    return pytest.param(name, *more, marks=[pytest.mark.slow] * is_slow)


QUICKLY = pytest.mark.parametrize('name', [marked(name) for name in NETWORKS])


def seen(name, images) -> np.ndarray:
    see = jax.jit(network_features, static_argnums=0)
    return np.asarray(see(name, NETWORKS[name].params(), jnp.asarray(images)))


def images(side, channels=1, number=3):
    rng = np.random.default_rng(0)
    noise = rng.uniform(-1, 1, (number, side, side, channels)).astype(np.float32)
    noise[0] = -1.0  # black
    return noise


@pytest.mark.parametrize(('name', 'side', 'channels'), [
    marked(name, *shape, slow=shape != (28, 1))
    for name in NETWORKS for shape in [(8, 1), (28, 1), (48, 3)]
])  # fmt: skip
def test_rows_have_as_many_columns_as_said_and_norm_at_most_one(name, side, channels):
    rows = seen(name, images(side, channels))
    assert rows.shape == (3, num_features(name, side))
    both = np.asarray(with_squares(jnp.asarray(rows)))
    assert both.shape == (3, 2 * num_features(name, side))
    for made in (rows, both):
        norms = np.linalg.norm(made, axis=1)
        assert norms.max() <= 1 + 1e-6 and norms.min() > 0.9


def test_squares_tell_various_rows_from_their_mean():
    various = jnp.array([[0.8, 0.0], [-0.8, 0.0]])
    equal = jnp.zeros((2, 2)) + 1e-3
    gap = with_squares(various).mean(axis=0) - with_squares(equal).mean(axis=0)
    assert jnp.linalg.norm(gap[:2]) < 0.01 < 0.5 < jnp.linalg.norm(gap[2:])


@pytest.mark.parametrize(('name', 'side'), [
    marked(name, side, slow=side in (28, 48, 65, 96, 256))
    for name in NETWORKS for side in [8, 28, 48, 64, 65, 96, 128, 256]
])  # fmt: skip
def test_an_image_is_seen_at_the_next_larger_size_that_the_network_knows(name, side):
    network = NETWORKS[name]
    sizes = [size for size, _ in network.inputs]
    shown = min((size for size in sizes if size >= side), default=max(sizes))
    shape = jax.eval_shape(
        lambda x: network_features(name, network.params(), x),
        jnp.zeros((1, side, side, 3)),
    ).shape
    assert shape == (1, num_features(name, side)) == (1, num_features(name, shown))
    if side != shown:
        picture = jnp.asarray(images(side, 3, 1))
        like = jax.image.resize(picture, (1, shown, shown, 3), 'linear', antialias=True)
        np.testing.assert_allclose(seen(name, picture), seen(name, like), atol=1e-5)


@EITHER
def test_a_row_is_of_its_image_alone(name):
    both = images(28)
    others = both.copy()
    others[1:] = others[1:][::-1] / 2
    np.testing.assert_array_equal(seen(name, both)[0], seen(name, others)[0])


@QUICKLY
def test_a_batch_in_pieces_keeps_every_row_in_its_place(name):
    both = images(28, number=9)
    parts = np.concatenate([seen(name, both[:2]), seen(name, both[2:])])
    np.testing.assert_allclose(seen(name, both), parts, atol=1e-5)


@QUICKLY
def test_grey_is_the_colour_of_equal_channels(name):
    grey = images(32)
    colour = grey.repeat(3, axis=-1)
    np.testing.assert_allclose(seen(name, grey), seen(name, colour), atol=1e-5)


@QUICKLY
def test_a_black_image_has_a_gradient(name):
    def total(x):
        return jnp.sum(network_features(name, NETWORKS[name].params(), x)[:, ::7])

    gradient = jax.jit(jax.grad(total))(jnp.full((1, 16, 16, 1), -1.0))
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


@EITHER
def test_a_stroke_is_told_from_its_halves_far_apart(name):
    """Grey levels are the same; the squares' places alone differ."""
    whole = np.full((1, 32, 32, 1), -1.0, np.float32)
    whole[:, 8:24, 14:18] = 1.0
    broken = np.roll(whole, 8, axis=1)  # top and bottom
    moved = np.roll(whole, 1, axis=2)  # by a pixel
    far, near = (
        np.linalg.norm(seen(name, other) - seen(name, whole))
        for other in (broken, moved)
    )
    assert far > 1.5 * near > 0
