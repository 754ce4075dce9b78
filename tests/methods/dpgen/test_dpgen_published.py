"""DPGEN as published: its network is told no label, a classifier labels what it draws."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from dpaf_jax.methods import dpgen
from dpaf_jax.methods.dpgen import randomised_response
from dpaf_jax.methods.dpgen.labeller import LabellerPhase
from dpaf_jax.methods.dpgen.phase import PublishedPhase, ScorePhase
from dpaf_jax.methods.dpgen.randomised_response import nearest, sanitise
from dpaf_jax.methods.dpgen.score_matching import make_score_matching
from dpaf_jax.networks.images import to_float
from dpaf_jax.networks.score import UNLABELLED
from dpaf_jax.release.bundle import load_release, write_release
from dpaf_jax.release.samplers.dpgen import ScoreSampler
from dpaf_jax.release.samplers.published_dpgen import LABELLER, SCORE, dpgen_sampler
from dpaf_jax.release.samplers.registry import make_sampler
from dpaf_jax.runtime import parallel

PUBLISHED = {'privacy__guarantee': 'as_published'}


def config(**fields):
    return tiny.config(method='dpgen', dpgen__steps=2, **fields)


def scattered(tree, scale=0.3):
    """Every weight drawn anew: the last layer begins at 0 and would hide all others."""
    rng = np.random.default_rng(5)
    return jax.tree.map(
        lambda leaf: (scale * rng.normal(size=leaf.shape)).astype(np.float32), tree
    )


def relabelled(run):
    labels = (run.data.labels + 1) % 3
    return dataclasses.replace(run, data=dataclasses.replace(run.data, labels=labels))


def shown(run, kind):
    """What the network is shown of the first four images."""
    phase = kind(run, make_score_matching(run.config, run.plan))
    part = {
        'indices': np.arange(4, dtype=np.int32)[:, None],
        'is_padding_example': np.zeros((4, 1), bool),
    }
    data, key = parallel.unreplicate(phase._data), np.arange(4, dtype=np.uint32)
    return jax.tree.map(np.asarray, phase._shots(data, part, key))


# --- the network ------------------------------------------------------------------------


def test_the_network_is_shown_no_label(tmp_path):
    run = tiny.run(tmp_path, config(**PUBLISHED))
    first, second = shown(run, PublishedPhase), shown(relabelled(run), PublishedPhase)
    assert (first.labels == UNLABELLED).all()
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_the_certified_one_is_and_a_label_kept_with_the_image_would_be_seen(tmp_path):
    run = tiny.run(tmp_path, config(dpgen__label_dropout=0.0, dpgen__guidance=1.0))
    first, second = shown(run, ScorePhase), shown(relabelled(run), ScorePhase)
    assert (first.labels == run.data.labels[:4, None]).all()
    assert (first.labels != second.labels).all()
    jax.tree.map(np.testing.assert_array_equal, first.noise, second.noise)


@pytest.mark.parametrize('sampler', ['heun', 'langevin'])
def test_samples_are_of_no_class_and_guided_by_none(sampler):
    fields = {'dpgen__sampler': sampler, 'dpgen__guidance': 3.0}
    made = {}
    for guarantee in ('as_published', 'certified'):
        drawn_by = make_sampler(config(privacy__guarantee=guarantee, **fields))
        params = scattered(jax.eval_shape(drawn_by.init, jax.random.key(0)))
        draw = jax.jit(drawn_by.sample)
        made[guarantee] = [
            np.asarray(draw(params, jax.random.key(1), np.full(4, label, np.int32)))
            for label in (0, 2)
        ]
    np.testing.assert_array_equal(*made['as_published'])
    assert np.abs(np.subtract(*made['certified'])).max() > 1e-3


def test_the_certified_form_has_its_network_alone(tmp_path, monkeypatch):
    typed, phases = config(), []
    assert type(make_sampler(typed)) is ScoreSampler
    run = tiny.run(tmp_path, typed)
    monkeypatch.setattr(
        type(run), 'train', lambda self, phase: phases.append(phase) or phase.init()
    )
    params = dpgen.train(run)
    (phase,) = phases
    assert type(phase) is ScorePhase
    assert set(params) == {'params'}
    with pytest.raises(ValueError, match='certified run reads no private label'):
        LabellerPhase(run)


# --- labels -----------------------------------------------------------------------------


def bright(run):
    """Classes that anybody can tell apart: black, grey and white, with a little noise."""
    grey = np.array([10, 127, 245])[run.data.labels, None, None, None]
    jitter = np.random.default_rng(0).integers(-9, 10, run.data.images.shape)
    images = (grey + jitter).astype(np.uint8)
    return dataclasses.replace(run, data=dataclasses.replace(run.data, images=images))


@pytest.mark.parametrize('devices', [1, 4])
def test_the_classifier_learns_from_private_images_and_labels(tmp_path, devices):
    fields = {'dpgen__labeller_steps': 40, 'dpgen__microbatch': 20, **PUBLISHED}
    run = bright(tiny.run(tmp_path, config(**fields), devices))
    phase = LabellerPhase(run)
    state = parallel.replicate(phase.init(), run.devices)
    step = 0
    while step < phase.total_steps:
        state, step, metrics = phase.window(state, step)
        assert not metrics  # its loss is of private images, and is told to nobody
    learnt = {LABELLER: parallel.unreplicate(state).ema_params}
    label = jax.jit(dpgen_sampler(run.config).label)
    given = label(learnt, to_float(run.data.images))
    assert np.mean(np.asarray(given) == run.data.labels) > 0.9


def test_what_fills_up_a_batch_for_four_devices_teaches_nothing(tmp_path):
    fields = {'dpgen__labeller_steps': 4, 'dpgen__microbatch': 18, **PUBLISHED}

    def learnt(devices):
        run = tiny.run(tmp_path / f'{devices}', config(**fields), devices)
        phase = LabellerPhase(run)
        state, step = parallel.replicate(phase.init(), run.devices), 0
        while step < phase.total_steps:
            state, step, _ = phase.window(state, step)
        return jax.tree.leaves(parallel.unreplicate(state).params)

    for alone, shared in zip(learnt(1), learnt(4), strict=True):
        assert np.allclose(alone, shared, atol=2e-5)


def test_a_release_holds_both_and_says_what_labels_come_from(tmp_path):
    typed = config(**PUBLISHED)
    plan = dpgen.plan(typed, tiny.NUM_EXAMPLES)
    params = scattered(jax.eval_shape(dpgen_sampler(typed).init, jax.random.key(0)))
    assert set(params) == {SCORE, LABELLER}
    write_release(tmp_path / 'release', typed, plan, params)
    release = load_release(tmp_path / 'release')
    card = (tmp_path / 'release' / 'README.md').read_text()
    assert 'certified epsilon: none' in card
    assert 'and their labels, without noise' in card
    assert 'no epsilon covers it' in card
    assert 'labels without noise' in release.privacy['guarantee']
    images, labels = release.sample(60, seed=1)
    given = jax.jit(make_sampler(typed).label)(release.params, to_float(images))
    given = np.asarray(given)
    # A class that the classifier never gives is served by what it calls another.
    known = np.isin(labels, np.unique(given))
    assert known.any() and np.array_equal(given[known], labels[known])


def test_a_certified_card_tells_of_no_classifier(tmp_path):
    typed = config()
    params = scattered(jax.eval_shape(make_sampler(typed).init, jax.random.key(0)))
    write_release(tmp_path / 'release', typed, tiny.plan(typed), params)
    card = (tmp_path / 'release' / 'README.md').read_text()
    assert 'certified' in card and 'classifier' not in card


# --- candidates -------------------------------------------------------------------------


def pictures(number=70):
    rng = np.random.default_rng(2)
    images = rng.uniform(-1, 1, (number, 4, 4, 1)).astype(np.float32)
    return images, images + rng.normal(size=images.shape).astype(np.float32)


@pytest.mark.parametrize('chunk', [8, 512])
def test_the_nearest_are_those_of_the_l2_norm_and_never_the_image_itself(
    chunk, monkeypatch
):
    monkeypatch.setattr(randomised_response, 'CHUNK', chunk)
    images, noisy = pictures()
    own = np.arange(3, 70, 3)
    found = nearest(noisy, images, own, 5)
    far = np.square(noisy[own, None] - images[None]).sum(axis=(2, 3, 4))
    far[np.arange(len(own)), own] = np.inf
    np.testing.assert_array_equal(found, np.argsort(far, axis=1)[:, :5])
    assert nearest(noisy, images, own[:0], 5).shape == (0, 5)


def test_the_answer_is_one_of_the_k_nearest_each_as_often():
    images, _ = pictures()
    ranks = []
    for seed in range(20):
        made = sanitise(images, (1.0, 0.3), 0.0, 4, 0.0, np.random.default_rng(seed))
        far = np.abs(made.recovered()[:, None] - images[None]).max(axis=(2, 3, 4))
        answer, every = far.argmin(axis=1), np.arange(len(images))
        order = nearest(made.noisy, images, every, 3)
        other = answer != every
        hit = order[other] == answer[other, None]
        assert hit.any(axis=1).all()
        ranks.append(hit.sum(axis=0))
    # Every answer, the image itself among them, has the same chance at epsilon = 0.
    shares = np.sum(ranks, axis=0) / (20 * len(images))
    np.testing.assert_allclose(shares, 0.25, atol=0.04)
