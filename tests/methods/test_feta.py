"""FETA: the first release at its share, images of it alone in between, then DP-SGD."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs

from dpaf_jax.config import public_dict
from dpaf_jax.methods import dpaf, feta
from dpaf_jax.methods.dpgen.phase import ScorePhase
from dpaf_jax.methods.dpgen.score_matching import make_score_matching
from dpaf_jax.methods.feta import FirstImagesPhase, first_release
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.release.bundle import load_release
from dpaf_jax.release.samplers.dpaf import dpaf_sampler
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.fingerprint import trained_with
from dpaf_jax.training.signals import Interrupted, StopRequest
from dpaf_jax.verify.verification import verify

# A labeller and one table a class, as configs/feta.py has it.
FIRST = tiny.ONE_SHOT | tiny.LABELLED | {'networks__generator': 'styled'}
STEPS = 3


def config(**fields):
    few = {'dpgen__warm_start_steps': STEPS, 'dpgen__scales': 1} | FIRST | fields
    return tiny.config(method='feta', **few)


def first_images(run):
    """The middle part on a first release of random parameters."""
    init = jax.jit(dpaf_sampler(first_release(run.config)).init)
    released = init(jax.random.key(3))
    weights = released['labeller']['weights']
    some = np.random.default_rng(0).normal(size=weights.shape).astype(np.float32)
    released['labeller']['weights'] = some
    return FirstImagesPhase(run, released), released


@pytest.fixture(scope='module')
def taught(tmp_path_factory):
    """(run, middle part, its start, its end): private images fail whoever looks at them."""
    run = tiny.run(tmp_path_factory.mktemp('taught'), config())
    hidden = dataclasses.replace(
        run.data, images=tiny.Untouchable(), labels=tiny.Untouchable()
    )
    phase, _ = first_images(dataclasses.replace(run, data=hidden))
    start = phase.init()
    return run, phase, start, dataclasses.replace(run, data=hidden).train(phase)


# --- plan -----------------------------------------------------------------------------


@functools.cache
def planned(share):
    return feta.plan(config(feta__share=share), 40)


def test_the_first_release_costs_its_share_and_all_of_epsilon_is_spent():
    typed = config(feta__share=0.25)
    plan = planned(0.25)
    *first, score = plan.mechanisms
    alone = dpaf.plan(first_release(typed), 40)
    assert tuple(first) == alone.mechanisms
    assert alone.epsilon <= 0.25 * typed.privacy.epsilon
    assert score.name == 'score'
    whole = accounting.epsilon_pld(plan.dp_event, plan.delta - plan.overflow_delta)
    assert 0.99 * typed.privacy.epsilon < whole <= plan.epsilon <= typed.privacy.epsilon
    assert plan.overflow_delta == pytest.approx(
        alone.overflow_delta + accounting.overflow_delta(score, 40)
    )


def test_a_larger_share_leaves_less():
    less, more = (planned(share)['score'].noise_multiplier for share in (0.25, 0.6))
    assert less < more


def test_without_noise_nothing_is_clipped():
    plan = feta.plan(config(privacy__epsilon=float('inf')), 40)
    assert [m.noise_multiplier for m in plan.mechanisms] == [0.0] * 3
    assert plan.epsilon is None


@pytest.mark.parametrize(('fields', 'field'), [
    ({'privacy__guarantee': 'as_published'}, 'config.privacy.guarantee'),
    ({'dpgen__warm_start': 'npz:/x.npz'}, 'config.dpgen.warm_start'),
    ({'feta__share': 1.0}, 'config.feta.share'),
])  # fmt: skip
def test_what_it_has_no_form_of_is_refused(fields, field):
    with pytest.raises(UserError, match=field.replace('.', r'\.')):
        feta.plan(config(**fields), 40)


def test_a_release_has_the_fields_of_all_that_it_is_built_of():
    shown = public_dict(config())
    assert {'feta', 'dpaf', 'dpgen'} < set(shown)
    assert 'dp_gan' not in shown


def test_other_fields_of_either_part_are_another_run():
    fields = trained_with(config())
    for changed in ('feta__share', 'feta__learning_rate', 'dpgen__steps'):
        other = trained_with(config(**{changed: 0.3 if 'feta' in changed else 77}))
        name = changed.replace('__', '.')
        assert {k for k in fields if fields[k] != other[k]} == {name}


# --- training -------------------------------------------------------------------------


def test_between_the_two_no_private_image_is_read(taught):
    _, _, start, state = taught
    assert state.steps == STEPS
    moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), start, state)
    assert any(jax.tree.leaves(moved.ema_params))


def test_images_have_the_labellers_labels_and_come_once(tmp_path):
    run = tiny.run(tmp_path, config(), devices=2)
    phase, released = first_images(run)

    def made(step):
        key = run.on_every_device(run.keys.public('first images', step))
        fn = parallel.pmapped(phase._images, run.devices)
        return jax.device_get(fn(parallel.replicate(released, run.devices), key))

    batch = made(0)
    flat = batch.images.reshape(-1, *batch.images.shape[-3:])
    assert flat.dtype == np.uint8
    assert len(np.unique(flat.reshape(len(flat), -1), axis=0)) == len(flat)  # devices
    assert len(np.unique(batch.index)) == len(flat)
    assert not np.array_equal(batch.images, made(1).images)
    sampler = dpaf_sampler(first_release(run.config))
    given = jax.jit(sampler.label)(released, flat.astype(np.float32) / 127.5 - 1)
    assert np.array_equal(batch.labels.ravel(), given)
    assert len(set(batch.labels.ravel())) > 1


def test_score_starts_from_them_and_tells_what_was_spent_before(taught):
    run, phase, _, end = taught
    before = {m.name: m.steps for m in run.plan.mechanisms if m.name != 'score'}
    assert len(before) == 2
    assert phase.charged(0) == phase.charged(STEPS) == before
    score = ScorePhase(run, make_score_matching(run.config, run.plan), end.ema_params)
    same = jax.tree.map(np.array_equal, score.init().params, end.ema_params)
    assert all(jax.tree.leaves(same))
    assert score.charged(2) == {**before, 'score': 2}


@pytest.mark.slow
def test_either_part_has_its_own_learning_rate(tmp_path):
    still = config(feta__learning_rate=1e-9, dpgen__learning_rate=0.5)
    phase, _ = first_images(run := tiny.run(tmp_path, still))
    start = phase.init().params
    taught = run.train(phase)
    near = jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-6), start, taught.params)
    assert all(jax.tree.leaves(near))
    matching = make_score_matching(still, run.plan)
    after = run.train(ScorePhase(run, matching, taught.params)).params
    near = jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-2), start, after)
    assert not any(jax.tree.leaves(near))


@pytest.mark.slow
def test_the_loss_of_a_batch_is_that_of_each_image():
    typed = config()
    matching = make_score_matching(typed, tiny.plan(typed))
    params = matching.init(public_key(np.zeros(4, np.uint32))).params
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    shots = matching.shots(tiny_batch(typed), jnp.zeros(4, jnp.uint32))
    whole = jax.jit(matching.loss)(params, shots)
    each = jax.jit(jax.vmap(matching.loss, (None, 0)))(params, shots)
    assert whole.shape == (6,) and len(np.unique(whole)) == 6
    np.testing.assert_allclose(whole, each, rtol=1e-5)


def tiny_batch(typed):
    data = tiny.dataset(typed, num_examples=6)
    index = np.arange(6, dtype=np.int32)[:, None]
    nothing = np.zeros((6, 1), bool)
    return ClipBatch(
        jnp.asarray(data.images[:, None]), data.labels[:, None], nothing, index
    )


# --- whole runs -----------------------------------------------------------------------


def train(folder, workdir, stop=None):
    source = tiny_runs.write_npz(folder / 'images.npz')
    small = {'dpgen__scales': 1, 'dpgen__warm_start_steps': STEPS}
    made = tiny_runs.one_shot(source, method='feta', **small)
    pipeline = Pipeline(made, workdir, stop=stop, entropy=tiny_runs.ENTROPY)
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
    return workdir / 'release'


@pytest.mark.slow
def test_a_release_holds_the_score_network_alone_and_verifies(tmp_path):
    folder = train(tmp_path, tmp_path / 'run')
    release = load_release(folder)
    images, labels = release.sample(10, seed=0)
    assert images.shape == (10, 8, 8, 1) and set(labels) == {0, 1}
    assert set(release.params) == {'params'}  # no generator, no labeller
    checks = verify(folder).checks
    assert all(check.passed is not False for check in checks), checks


@pytest.mark.slow
def test_a_stop_between_the_two_and_a_resume_change_no_bit(tmp_path):
    whole = train(tmp_path, tmp_path / 'whole')
    stop, parts = StopRequest(), tmp_path / 'parts'
    with tiny_runs.stop_at(stop, 'first_images', 1), pytest.raises(Interrupted):
        train(tmp_path, parts, stop)
    name = 'generator.safetensors'
    assert (train(tmp_path, parts) / name).read_bytes() == (whole / name).read_bytes()
