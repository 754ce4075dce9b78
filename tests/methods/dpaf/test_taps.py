"""Every tap keeps its bound for every image, and stands where readers look for it."""

import functools
import pathlib

import jax
import numpy as np
import pytest
import tiny

from dpaf_jax.audit import canaries
from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.taps import features
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout
from dpaf_jax.networks.images import to_float

ALGORITHM = pathlib.Path(__file__).parents[3] / 'docs' / 'explanation' / 'algorithm.md'
FAST = [tap for tap in features.TAPS if tap != 'perceptual']  # a large network
WITH = {'kinds': 'kinds,leaves', 'count': 'count,pixels'}


@functools.cache
def seen(tap, channels):
    """(bound, the tap's columns of extreme images), as DPAGG reads them."""
    fields = {'dpaf__taps': WITH.get(tap, tap), 'data__channels': channels}
    if tap == 'labeller':
        fields['dpaf__classifier__private'] = 'labeller'
    config = tiny.config(**tiny.ONE_SHOT | fields)
    gan, networks = Gan(config, tiny.plan(config), 1), make_networks(config)
    params = jax.jit(lambda: gan.init(jax.random.key(0), None).params)()
    images = canaries.extremes(config.data, 12)
    labels = np.arange(len(images)) % config.data.num_classes

    @jax.jit
    def read(images, labels):
        return features.features(networks, params, to_float(images), labels)[tap]

    (block,) = (b for b in make_tap_layout(config).blocks if b.name == tap)
    rows = np.asarray(read(images, labels))
    assert rows.shape[1:] == block.shape
    return block.bound, rows.reshape(len(rows), -1)


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize(
    'tap', [*FAST, pytest.param('perceptual', marks=pytest.mark.slow)]
)
def test_a_taps_bound_holds_for_extreme_images(tap, channels):
    """Rows are clipped all the same, which would lose what is beyond it without a word."""
    bound, rows = seen(tap, channels)
    norms = np.linalg.norm(rows, axis=1)
    assert np.isfinite(rows).all() and norms.max() <= bound * (1 + 1e-5)
    assert norms.max() > 0.1 * bound  # a bound that no image comes near costs noise


def test_a_tap_adds_no_coins_to_the_others(monkeypatch):
    config = tiny.config(**tiny.ONE_SHOT | {'dpaf__taps': 'count,fourier,shape'})
    before = features.init_taps(config, jax.random.key(0), {})
    monkeypatch.setattr(features, 'TAPS', ('new', *features.TAPS))
    after = features.init_taps(config, jax.random.key(0), {})
    assert before and jax.tree.all(jax.tree.map(np.array_equal, before, after))


@pytest.mark.parametrize('tap', features.TAPS)
def test_readers_find_every_tap(tap):
    assert f'| `{tap}`' in ALGORITHM.read_text(encoding='utf-8')
