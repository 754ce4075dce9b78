"""The tap `shape`: bounded, and it misses what lies between two shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.taps.cosines import init_shape
from dpaf_jax.methods.dpaf.taps.features import features
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout

SIDE = 16


def shape_features(images):
    """The tap's features of [B, 16, 16, 1] images in [-1, 1]."""
    return jax.jit(_shape_features)(images)


def _shape_features(images):
    config = tiny.config(data__image_size=SIDE, data__channels=1, dpaf__taps='shape')
    networks = make_networks(config)
    planes = jnp.zeros((1, config.data.num_classes))
    conv1 = networks.conv1.init(jax.random.key(0), images[:1], planes)
    maps1 = networks.conv1.apply(conv1, images[:1], planes)
    conv2 = networks.conv2.init(jax.random.key(1), maps1)
    shape = init_shape(jax.random.key(2), SIDE, 1)
    params = {'conv1': conv1, 'conv2': conv2, 'shape': shape}
    return features(networks, params, images, jnp.zeros(len(images), jnp.int32))[
        'shape'
    ]


def strokes(angles):
    """A bright bar through the centre at each angle."""
    place = np.arange(SIDE) - (SIDE - 1) / 2
    y, x = np.meshgrid(place, place, indexing='ij')
    off = x * np.sin(angles)[:, None, None] - y * np.cos(angles)[:, None, None]
    return jnp.asarray(2 * np.exp(-((off / 1.5) ** 2)) - 1, jnp.float32)[..., None]


def test_rows_have_norm_at_most_one():
    noise = jax.random.uniform(jax.random.key(3), (8, SIDE, SIDE, 1), minval=-1)
    images = jnp.concatenate(
        [noise, -jnp.ones((1, SIDE, SIDE, 1)), strokes(np.zeros(1))]
    )
    norms = jnp.linalg.norm(shape_features(images), axis=1)
    assert float(norms.max()) <= 1 + 1e-6
    assert make_tap_layout(tiny.config(dpaf__taps='count,shape')).bound == 1


@pytest.mark.parametrize('seed', [0, 1])
def test_two_shapes_laid_on_each_other_are_told_from_either(seed):
    """Their mean features differ from those of the two, by far more than two halves do."""
    rng = np.random.default_rng(seed)
    flat = strokes(rng.normal(0.0, 0.2, 60))
    steep = strokes(rng.normal(np.pi / 2, 0.2, 60))
    both = jnp.maximum(flat, steep)
    one, other = (
        shape_features(jnp.concatenate([flat[half], steep[half]])).mean(axis=0)
        for half in (slice(30), slice(30, 60))
    )
    crossed = shape_features(both).mean(axis=0)
    assert jnp.linalg.norm(crossed - one) > 2 * jnp.linalg.norm(other - one)
