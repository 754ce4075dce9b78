"""Releases with a labeller: their images, how these are mended, and what labels them."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_releases
import tiny_runs

from dpaf_jax import methods
from dpaf_jax.attack.target import open_target
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.networks.fixed.wavelets import wavelet_features
from dpaf_jax.networks.images import to_float
from dpaf_jax.pipeline.stages import evaluate
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release import card, drawing
from dpaf_jax.release.bundle import load_release, write_release
from dpaf_jax.release.samplers.dpaf import (
    LABELLER,
    as_trained,
    truncated,
    warp,
)
from dpaf_jax.release.samplers.mending.denoise import nonlocal_means
from dpaf_jax.release.samplers.registry import make_sampler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.workdir import Workdir

ON = {**tiny.ONE_SHOT, 'dpaf__classifier__private': LABELLER, 'dpaf__taps': 'wavelet'}


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """A release with an untrained generator, and the data that its plan is for.

    Its labeller sees about as many of one class as of the other.
    """
    folder = tmp_path_factory.mktemp('labelled')
    source = tiny_runs.write_npz(folder / 'images.npz')
    config = tiny_runs.one_shot(
        source,
        dpaf__classifier__private=LABELLER,
        dpaf__taps='count,wavelet,labeller',
        dpaf__generator__warp=0.1,
    )
    pipeline = Pipeline(config, folder / 'run')
    pipeline.run('prepare')
    plan = pipeline.run('plan')
    shown = dataclasses.replace(
        pipeline.config,
        data=dataclasses.replace(pipeline.config.data, num_examples=plan.num_examples),
    )
    sampler = make_sampler(shown)
    params = jax.jit(sampler.init)(jax.random.key(0))
    some = jax.jit(sampler.generator.sample)(
        params['generator'], jax.random.key(1), jnp.zeros(60, jnp.int32)
    )
    usual = np.asarray(jax.jit(wavelet_features)(some)).mean(axis=0)
    across = np.random.default_rng(0).normal(size=len(usual))
    across -= usual * (across @ usual) / (usual @ usual)
    weights = np.stack([across, -across], axis=1).astype(np.float32)
    params = {**params, LABELLER: {'weights': weights}}
    write_release(pipeline.workdir.release, shown, plan, params)
    pipeline.run('samples')
    return folder / 'run'


def test_a_release_gives_its_images_the_labels_that_its_labeller_sees(finished):
    release = load_release(finished / 'release')
    images, labels = release.sample(60, seed=3)
    sampler = make_sampler(release.config)
    given = np.asarray(jax.jit(sampler.label)(release.params, to_float(images)))
    assert np.array_equal(given, labels)
    assert np.bincount(labels).tolist() == [30, 30]


def test_a_release_labels_any_images(finished):
    release = load_release(finished / 'release')
    images, labels = release.sample(60, seed=3)
    assert np.array_equal(release.label(images), labels)
    assert len(release.label(images[:0])) == 0
    with pytest.raises(
        UserError, match=r'images: are float32 of the shape \(60, 8, 8\)'
    ):
        release.label(images[:, :, :, 0].astype(np.float32))


def test_a_release_without_a_labeller_labels_nothing(tmp_path):
    release = tiny_releases.write('one shot', tmp_path / 'release')
    with pytest.raises(UserError, match='release: has no labeller'):
        load_release(release).label(np.zeros((1, 8, 8, 1), np.uint8))


def test_how_often_its_labeller_is_right_is_told_with_the_accuracies(finished):
    release = load_release(finished / 'release')
    images, labels = release.sample(60, seed=3)
    labels = np.where(np.arange(60) < 6, 1 - labels, labels)
    job = SimpleNamespace(workdir=Workdir(finished))
    (made,) = evaluate._labeller(job, Labelled(images, labels)).values()
    assert made['labeller']['mean'] == 0.9


def test_the_card_says_where_labels_come_from(finished):
    assert (
        'label that a classifier gives it'
        in (finished / 'release/README.md').read_text()
    )


@pytest.mark.parametrize(('most', 'bent'), [(0.0, False), (0.05, True)])
def test_the_card_says_whether_images_are_bent(most, bent):
    config = tiny.config(**ON, dpaf__generator__warp=most)
    assert ('bent a little at random' in card._labels(config)) == bent
    assert card.bends(config) == bent


def test_the_card_says_whether_images_are_mirrored():
    config = tiny.config(**ON, dpaf__generator__warp=0.05, dpaf__mirrored=True)
    assert ', bent a little at random and mirrored by a coin,' in card._labels(config)
    assert 'mirrored' not in card._labels(tiny.config(**ON))


def test_the_picture_shows_images_that_are_not_bent(finished, tmp_path, monkeypatch):
    release, drawn_with = load_release(finished / 'release'), []
    compiled = drawing._compiled

    def noting(config):
        drawn_with.append(config)
        return compiled(config)

    monkeypatch.setattr(drawing, '_compiled', noting)
    plan = PrivacyPlan.from_json(release.privacy)
    write_release(tmp_path / 'again', release.config, plan, release.params)
    assert [warp(config) for config in drawn_with] == [0] and warp(release.config)
    assert card.SHOWN_UNBENT in (tmp_path / 'again' / 'README.md').read_text()


@pytest.mark.parametrize(('number', 'epsilon', 'expected'), [
    (1500, 9.9, 0.3), (1500, 10.0, 0.1), (0, 10.0, 0.1), (1500, float('inf'), 0.1)
])  # fmt: skip
def test_with_few_records_images_are_bent_more(number, epsilon, expected):
    fields = {**ON, 'data__num_examples': number, 'privacy__epsilon': epsilon}
    bends = {'dpaf__generator__warp': 0.1, 'dpaf__generator__warp_of_few': 0.3}
    assert warp(tiny.config(**fields, **bends)) == expected


def test_without_a_bend_of_their_own_few_records_have_the_others():
    config = tiny.config(**ON, data__num_examples=40, dpaf__generator__warp=0.1)
    assert config.has_few_records and warp(config) == 0.1


def test_small_batches_have_a_number_of_steps():
    config = tiny.config(dpaf__generator_steps=0)
    with pytest.raises(UserError, match='generator_steps: is 0, which is for one'):
        methods.get('dpaf').plan(config, tiny.NUM_EXAMPLES)


@pytest.mark.parametrize(('field', 'value'), [
    ('generator__latent_scale', 0.85), ('generator__denoise', 0.1),
    ('generator__warp', 0.05), ('generator__warp_of_few', 0.05), ('mirrored', True),
])  # fmt: skip
def test_as_trained_nothing_is_done_to_images(field, value):
    mended = tiny.config(**ON, **{f'dpaf__{field}': value})
    assert as_trained(mended) == as_trained(tiny.config(**ON))
    assert as_trained(mended) != mended


def test_attacks_see_images_as_they_were_before_they_were_bent(finished):
    release = load_release(finished / 'release')
    straight = dataclasses.replace(release, config=as_trained(release.config))
    number = release.config.samples.num
    seen = open_target(finished).synthetic
    assert np.array_equal(seen, straight.sample(number, seed=0)[0])
    assert not np.array_equal(seen, release.sample(number, seed=0)[0])


def test_wider_draws_make_other_images_and_one_is_training_s_own():
    config = tiny.config(**ON)
    key, labels = jax.random.key(1), jnp.zeros(6, jnp.int32)
    sampler = make_sampler(config)
    params = jax.jit(sampler.init)(jax.random.key(0))
    as_trained = jax.jit(sampler.generator.sample)(params['generator'], key, labels)
    found = jax.jit(sampler.sample)(params, key, labels)
    assert np.array_equal(found, as_trained)
    wide = make_sampler(tiny.config(**ON, dpaf__generator__latent_scale=2.0))
    others = jax.jit(wide.sample)(params, key, labels)
    assert not np.allclose(others, as_trained, atol=1e-3)


@pytest.mark.parametrize(('channels', 'scale'), [(1, 0.85), (3, 0.7)])
def test_no_width_of_one_s_own_is_that_of_the_channels(channels, scale):
    config = tiny.config(
        **ON, data__channels=channels, dpaf__generator__latent_scale=0.0
    )
    assert make_sampler(config).generator.scale == scale
    near = truncated(config, 0.5).dpaf.generator
    assert near.latent_scale == pytest.approx(scale / 2)


def test_grain_goes_before_images_are_labelled():
    grainy, smooth = (
        make_sampler(tiny.config(**ON, dpaf__generator__denoise=strength))
        for strength in (0.0, 0.5)
    )
    key, labels = jax.random.key(1), jnp.zeros(6, jnp.int32)
    params = jax.jit(smooth.init)(jax.random.key(0))
    images = jax.jit(grainy.sample)(params, key, labels)
    made = jax.jit(smooth.sample)(params, key, labels)
    assert not np.allclose(made, images, atol=1e-2)
    expected = jax.jit(nonlocal_means, static_argnums=1)(images, 0.5)
    np.testing.assert_allclose(made, expected, atol=1e-6)


def test_bent_images_are_labelled_as_they_are_released():
    bent = make_sampler(tiny.config(**ON, dpaf__generator__warp=0.1))
    key, labels = jax.random.key(1), jnp.zeros(6, jnp.int32)
    params = jax.jit(bent.init)(jax.random.key(0))
    straight = jax.jit(bent.generator.sample)(params['generator'], key, labels)
    made = jax.jit(bent.sample)(params, key, labels)
    assert not np.allclose(made, straight, atol=1e-2)
    with pytest.raises(UserError, match='no labeller looks'):
        methods.get('dpaf').plan(
            tiny.config(**tiny.ONE_SHOT, dpaf__generator__warp=0.1), 40
        )
