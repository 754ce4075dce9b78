"""The tap `perceptual`: what a public network sees, and that a release says so."""

import contextlib
import importlib.metadata

import jax
import numpy as np
import pytest
import tiny
import tiny_runs

from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.taps.cosines import SHAPE_COLUMNS
from dpaf_jax.methods.dpaf.taps.features import features, init_taps
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout
from dpaf_jax.networks.perceptual import efficientnet
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.release.card import model_card
from dpaf_jax.release.samplers.dpaf import (
    dpaf_sampler,
    init_weights,
    labelled,
    labeller_features,
)
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.signals import Interrupted, StopRequest
from dpaf_jax.verify.verification import verify

TAPS = 'count,perceptual'
LABELLER = {
    'dpaf__classifier__private': 'labeller',
    'dpaf__classifier__features': 'perceptual',
}
SAID = 'EfficientNet-Lite0, learnt on ImageNet'


def run_config(tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'private.npz')
    return tiny_runs.one_shot(source, dpaf__taps=f'{TAPS},labeller', **LABELLER)


def train(made, workdir, stop=None):
    pipeline = Pipeline(made, workdir, stop=stop, entropy=tiny_runs.ENTROPY)
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
    return (workdir / 'release' / 'generator.safetensors').read_bytes()


@pytest.mark.parametrize('taps', ['perceptual', 'leaves', 'leaves,kinds'])
def test_rows_keep_their_bound_of_one(taps):
    config = tiny.config(**tiny.ONE_SHOT | {'dpaf__taps': f'count,{taps}'})
    layout = make_tap_layout(config)
    assert layout.bound == 1 and all(tap in layout for tap in taps.split(','))


def test_kinds_are_of_the_network_that_is_tapped():
    """Bounded, and apart where the network's features are."""
    config = tiny.config(**tiny.ONE_SHOT | {'dpaf__taps': 'count,kinds,leaves'})
    networks = make_networks(config)
    side, number = config.data.image_size, 6
    images = np.random.default_rng(1).uniform(-1, 1, (number, side, side, 1))
    images = images.astype(np.float32)
    images[1] = images[0]
    planes, labels = np.zeros((1, config.data.num_classes)), np.zeros(number, np.int32)

    @jax.jit
    def kinds(images):
        params = init_taps(config, jax.random.key(0), {})
        params['conv1'] = networks.conv1.init(jax.random.key(2), images[:1], planes)
        maps1 = networks.conv1.apply(params['conv1'], images[:1], planes)
        params['conv2'] = networks.conv2.init(jax.random.key(3), maps1)
        return features(networks, params, images, labels)['kinds']

    rows = np.asarray(kinds(images))
    assert rows.shape == (number, SHAPE_COLUMNS)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-6
    assert np.linalg.norm(rows[0] - rows[1]) < 1e-5 < np.linalg.norm(rows[0] - rows[2])


def test_kinds_without_a_network_are_refused():
    with pytest.raises(
        UserError, match='kinds is of what a network sees.*perceptual or leaves'
    ):
        make_tap_layout(tiny.config(**tiny.ONE_SHOT | {'dpaf__taps': 'count,kinds'}))


@pytest.mark.parametrize(
    'fields,said',
    [
        ({'dpaf__taps': TAPS}, True),
        (LABELLER, True),
        ({**LABELLER, 'dpaf__classifier__features': 'wavelet'}, False),
        ({'dpaf__classifier__features': 'perceptual'}, False),  # no labeller reads them
        ({'dpaf__taps': 'count,leaves'}, False),  # no photograph taught it
        ({**LABELLER, 'dpaf__classifier__features': 'leaves'}, False),
    ],
)
def test_card_and_config_say_what_was_read(fields, said):
    config = tiny.config(**tiny.ONE_SHOT | fields)
    card = ' '.join(model_card(config, tiny.plan(config).to_json()).split())
    assert ('**Public data were used.**' in card) == said == (SAID in card)
    assert config.public_features == (SAID if said else '')
    assert ('Labels need its weights' in card) == (fields == LABELLER)


def test_without_the_network_a_run_stops_before_it_reads_a_picture(
    tmp_path, monkeypatch
):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, 'files', absent)
    efficientnet.load_params.cache_clear()
    pipeline = Pipeline(run_config(tmp_path), tmp_path / 'run')
    with pytest.raises(UserError, match='pip install efficientnet'):
        pipeline.run('prepare')
    assert not (tmp_path / 'run' / 'private').exists()


@pytest.mark.parametrize(
    'features', [pytest.param('perceptual', marks=pytest.mark.slow), 'leaves']
)
def test_a_labeller_judges_by_what_the_network_sees(features):
    fields = {**LABELLER, 'dpaf__classifier__features': features}
    config = tiny.config(**tiny.ONE_SHOT | fields)
    data = config.data
    images = np.random.default_rng(0).uniform(-1, 1, (4, *data.shape))
    images = images.astype(np.float32)
    seen = np.asarray(jax.jit(lambda x: labeller_features(config, x))(images))
    weights = seen[: data.num_classes].T  # each image is its own class
    sampler = dpaf_sampler(config)
    assert init_weights(config)['weights'].shape == weights.shape
    given = jax.jit(sampler.label)(labelled({}, {'weights': weights}), images)
    np.testing.assert_array_equal(given[: data.num_classes], range(data.num_classes))


@pytest.mark.slow
def test_a_stop_in_the_middle_changes_no_bit_and_the_report_says_what_was_read(
    tmp_path,
):
    made = run_config(tmp_path)
    whole, stop = train(made, tmp_path / 'whole'), StopRequest()
    with tiny_runs.stop_at(stop, 'gan', 2), contextlib.suppress(Interrupted):
        train(made, tmp_path / 'cut', stop)
    assert not (tmp_path / 'cut' / 'release').exists()
    assert train(made, tmp_path / 'cut') == whole
    pipeline = Pipeline(made, tmp_path / 'cut')
    for stage in ('samples', 'evaluate', 'report'):
        pipeline.run(stage)
    page = (tmp_path / 'cut' / 'report.html').read_text()
    assert 'Public data were used' in page and SAID in page
    assert verify(tmp_path / 'cut' / 'release').passed
