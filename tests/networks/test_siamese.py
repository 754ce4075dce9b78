"""One change for all images, drawn in public; each image's result is its own."""

import jax
import numpy as np
import pytest

from dpaf_jax.networks.ndpdc.extractor import Extractor
from dpaf_jax.networks.ndpdc.siamese import Change, changed, draw_change

SIDE = 8


@pytest.fixture(scope='module')
def changes():
    """What a hundred keys give."""
    keys = jax.random.split(jax.random.key(0), 100)
    made = jax.jit(jax.vmap(lambda key: draw_change(key, SIDE)))(keys)
    return [jax.tree.map(lambda leaf, i=i: leaf[i], made) for i in range(100)]


def pictures(number=3, channels=2):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (number, SIDE, SIDE, channels)).astype(np.float32)


def test_every_image_is_changed_by_itself_and_all_alike(changes):
    images = pictures()
    images[2] = images[0]
    for change in changes[:10]:
        whole = np.asarray(changed(change, images))
        alone = np.concatenate([changed(change, image[None]) for image in images])
        np.testing.assert_array_equal(whole, alone)
        np.testing.assert_array_equal(whole[0], whole[2])


def test_pixels_stay_pixels(changes):
    images = np.sign(pictures())
    for change in changes:
        assert np.abs(changed(change, images)).max() <= 1 + 1e-6
        weights = np.asarray(change.weights)
        assert weights.min() >= 0 and weights.sum(axis=1).max() <= 1 + 1e-6


def test_all_kinds_come(changes):
    images = pictures(1, 1)
    grid = np.indices((SIDE, SIDE)).reshape(2, -1)
    seen = set()
    for change in changes:
        made = np.asarray(changed(change, images))
        if np.allclose(made, images[:, :, ::-1], atol=1e-6):
            seen.add('mirror')
        elif np.allclose(made, images, atol=1e-6):
            seen.add('none')  # a mirror's other half
        elif np.all((made == -1) | np.isclose(made, images, atol=1e-6)):
            black = (made == -1).reshape(-1)
            spread = grid[:, black].max(axis=1) - grid[:, black].min(axis=1)
            assert spread.max() < SIDE / 2  # a hole of half a side
            seen.add('hole')
        else:
            seen.add('move, turn or stretch')
    assert seen == {'mirror', 'none', 'hole', 'move, turn or stretch'}


def test_a_pixel_between_two_is_their_mean():
    images = pictures(1, 1)
    places = np.tile(np.arange(SIDE * SIDE)[:, None], (1, 4))
    places[:, 1] = np.roll(places[:, 1], -1)
    weights = np.tile(np.float32([0.5, 0.5, 0, 0]), (SIDE * SIDE, 1))
    made = np.asarray(changed(Change(places, weights), images)).ravel()
    flat = images.ravel()
    np.testing.assert_allclose(made, (flat + np.roll(flat, -1)) / 2, atol=1e-6)


def test_features_of_an_image_do_not_depend_on_who_else_is_there():
    network, images = Extractor(4, 2), pictures()
    weights = network.init(jax.random.key(1), images)
    whole = network.apply(weights, images)
    assert whole.shape == (3, 2 * 2 * 4)
    alone = np.concatenate([network.apply(weights, image[None]) for image in images])
    np.testing.assert_allclose(whole, alone, rtol=1e-5, atol=1e-6)


def test_a_blank_image_has_no_features():
    network, blank = Extractor(4, 2), np.zeros((1, SIDE, SIDE, 1), np.float32)
    weights = network.init(jax.random.key(1), blank)
    assert not np.any(network.apply(weights, blank))
