"""PATE-GAN: one vote for each image shown, every count charged, a student between."""

import dataclasses
import functools
import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs
from g_pate_cases import audited, mixed, with_empty_slots

from dpaf_jax.audit.methods import g_pate as audit
from dpaf_jax.methods.g_pate import pate_gan
from dpaf_jax.methods.g_pate.pate_gan import PateGan
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.noise import noisy_total
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.bundle import load_release
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.accountant import gaussian_epsilon
from dpaf_jax.verify.verification import verify

SHOWN = 6 * 2  # fakes and copies of tiny.config
PRINTED = {
    'pate_gan__copies': 1, 'pate_gan__spread': 0.0,
    'pate_gan__relative': False, 'pate_gan__majority': True,
    'pate_gan__variety': 0.0,
}  # fmt: skip


def settings(**fields):
    return tiny.config(method='pate_gan', **fields)


def gan_of(sigma=1.0, **fields):
    config = settings(**fields)
    return PateGan(config, tiny.plan(config, sigma))


def started(gan):
    state = jax.device_get(jax.jit(gan.init)(jax.random.key(0)))
    return state, jax.jit(gan.fakes)(state.generator.params, jax.random.key(1))


# --- the plan -------------------------------------------------------------------------


@pytest.mark.parametrize('epsilon', [1.0, 10.0])
def test_every_count_of_every_image_shown_is_charged(epsilon):
    plan = pate_gan.plan(settings(privacy__epsilon=epsilon), 40)
    (m,) = plan.mechanisms
    assert (m.name, m.sampling_prob, m.steps) == ('counts', 1, 4 * SHOWN)
    assert m.l2_sensitivity == 1
    assert plan.overflow_delta == 0 and plan.guarantee == CERTIFIED
    exact = gaussian_epsilon(math.sqrt(m.steps) / m.noise_std, plan.delta)
    assert exact <= plan.epsilon <= epsilon and exact > 0.999 * epsilon


@pytest.mark.parametrize(('fields', 'field'), [
    ({'g_pate__teachers': 41}, r'config\.g_pate\.teachers: is 41, for 40'),
    ({'g_pate__agreement': True}, r'config\.g_pate\.agreement: is True'),
    ({'privacy__guarantee': 'as_published'}, r'guarantee: .* a private number'),
])  # fmt: skip
def test_what_does_not_fit_is_refused(fields, field):
    with pytest.raises(UserError, match=field):
        pate_gan.plan(settings(**fields), 40)


# --- what one teacher can do ----------------------------------------------------------


@functools.cache
def asked(relative):
    """(method, state, fakes, what a teacher says of them)."""
    gan = gan_of(pate_gan__relative=relative)
    return gan, *started(gan), jax.jit(gan.teachers.say)


@pytest.mark.parametrize('relative', [True, False])
@pytest.mark.parametrize('value', [0.3, np.nan, np.inf, -1e38])
def test_a_vote_is_0_or_1_whatever_the_teacher(value, relative):
    gan, state, fakes, say = asked(relative)
    params = jax.tree.map(
        lambda leaf: jnp.full_like(leaf[0], value), state.teachers.tree[0]
    )
    votes = say(params, fakes.questions, gan.labels_shown(fakes))
    assert votes.shape == (SHOWN,) and set(np.unique(votes)) <= {0.0, 1.0}


def counts(gan, images):
    """[SHOWN] exact counts of one step, whose teachers see these records."""
    state = jax.device_get(jax.jit(gan.init)(jax.random.key(0)))
    batch = audit.canaries.batch(images, gan.config.data, (8, 3))
    return audit._releaser(gan, 1)(state, batch, np.zeros((1, 8), np.uint32))[0]


@pytest.mark.parametrize(
    'relative', [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_one_record_moves_each_count_by_at_most_1(relative):
    gan = gan_of(
        0.0, pate_gan__relative=relative, g_pate__teacher_learning_rate=1.0
    )  # one record turns many votes
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(24, *gan.config.data.shape), dtype=np.uint8)
    moved = images.copy()
    moved[4] = 255 - moved[4]
    one, other = counts(gan, images), counts(gan, moved)
    assert np.all(one == np.round(one)) and np.all((one >= 0) & (one <= 8))
    assert np.abs(one - other).max() == 1 == gan.mechanism.l2_sensitivity


def test_what_lies_in_an_empty_slot_reaches_no_teacher():
    empty, wild = with_empty_slots(gan_of())
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, empty, wild)))


def test_what_is_shown_and_learnt_from_depends_on_counts_alone():
    """Other records, the same noisy counts: the same student, generator and next fakes."""
    gan = gan_of()
    state, _ = started(gan)
    key, noise = np.arange(4, dtype=np.uint32), np.arange(8, dtype=np.uint32)
    released = jnp.linspace(0.0, 8.0, SHOWN)
    step = jax.jit(lambda *args: gan.step(*args))  # traced where `release` is replaced

    def after(images):
        batch = audit.canaries.batch(images, gan.config.data, (8, 3))
        with mock.patch.object(PateGan, 'release', lambda *_: released):
            made, _ = step(state, batch, noise, key)
        return jax.device_get(made._replace(teachers=None))

    rng = np.random.default_rng(0)
    shape = (24, *gan.config.data.shape)
    one, other = (
        after(rng.integers(256, size=shape, dtype=np.uint8)) for _ in range(2)
    )
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, one, other)))


def test_counts_are_the_same_on_one_device_and_on_eight():
    gan = gan_of(3.0)
    votes = np.random.default_rng(0).integers(0, 2, (8, 9)).astype(np.float32)
    key = jnp.arange(8, dtype=jnp.uint32)

    def released(devices):
        fn = parallel.pmapped(
            lambda votes: gan.release(votes, key), jax.local_devices()[:devices]
        )
        return parallel.unreplicate(fn(votes.reshape(devices, -1, 9)))

    np.testing.assert_array_equal(released(1), released(8))
    assert np.all(released(1) != votes.sum(axis=0))


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_faults():
    assert not audited('pate_gan')

    with mock.patch.object(PateGan, 'query', mixed(PateGan.query)):
        assert 'sensitivity' in audited('pate_gan')
    with mock.patch.object(
        voting, 'noisy_total', lambda sums, key, std: noisy_total(sums, key, std / 2)
    ):
        assert 'noise level' in audited('pate_gan')


# --- teachers, student, generator -----------------------------------------------------


def test_as_printed_no_fake_is_real_to_a_teacher_who_knows_them_and_relative_some_are():
    for relative in (False, True):
        fields = {**PRINTED, 'pate_gan__relative': relative}
        gan = gan_of(g_pate__teacher_learning_rate=0.05, **fields)
        state, fakes = started(gan)
        batch = audit.canaries.batch(
            np.full((24, *gan.config.data.shape), 255, np.uint8),
            gan.config.data,
            (8, 3),
        )
        teachers = state.teachers.tree
        query = jax.jit(gan.query)
        for _ in range(30):
            teachers, votes = query(teachers, batch, fakes)
        assert (np.asarray(votes).sum() > 0) == relative


def test_relative_votes_are_about_the_mean_of_a_class():
    gan = gan_of()
    voters = gan.teachers
    logits = jnp.array([1.0, 3.0, -5.0, -1.0, 7.0])
    labels = jnp.array([0, 0, 1, 1, 2])  # a class of one image has no better one
    with mock.patch.object(pate_gan.Teacher, 'apply', lambda *_: logits):
        votes = voters.say(None, jnp.zeros((5, 8, 8, 1)), labels)
    np.testing.assert_array_equal(votes, [0, 1, 0, 1, 0])


def test_copies_are_the_fakes_with_noise_and_stay_images():
    gan = gan_of(pate_gan__copies=3, pate_gan__spread=0.5)
    _, fakes = started(gan)
    shown = np.asarray(fakes.questions).reshape(3, *fakes.images.shape)
    assert np.abs(shown).max() <= 1
    assert np.all(np.std(shown, axis=0).mean(axis=(1, 2, 3)) > 0.1)
    _, plain = started(gan_of(**PRINTED))
    np.testing.assert_array_equal(plain.questions, plain.images)


def test_octaves_are_smooth_and_of_one_strength():
    key = jax.random.key(0)
    octaves = jax.jit(pate_gan.octaves, static_argnums=(1, 2, 3))
    by_number = [np.asarray(octaves(key, (500, 16, 16, 1), 2, n)) for n in (1, 3)]
    strengths = [noise.std() for noise in by_number]
    assert all(0.6 < s < 1.1 for s in strengths)
    steps = [np.diff(n, axis=1).std() / n.std() for n in by_number]
    assert steps[1] < 0.8 * steps[0]


def test_columns_of_a_table_have_no_neighbours():
    config = settings(pate_gan__copies=1000, pate_gan__octaves=3, g_pate__cell=2)
    table = dataclasses.replace(
        config.data, source='table:x', columns='a:0:1,b:0:1', channels=1
    )
    config = dataclasses.replace(config, data=table)
    gan = PateGan(config, tiny.plan(config))
    shown = jax.jit(gan.questions)(jax.random.key(0), jnp.zeros((2, 1, 2, 1)))
    assert shown.shape == (2000, 1, 2, 1)
    assert abs(np.corrcoef(shown[:, 0, :, 0].T)[0, 1]) < 0.1


def test_the_student_remembers_the_latest_and_learns_of_nothing_else():
    gan = gan_of()
    student = started(gan)[0].student
    shape = gan.config.data.shape
    remember = jax.jit(type(student).remember)
    for step in range(3):
        images, labels = np.full((SHOWN, *shape), step), np.full(SHOWN, step)
        student = remember(student, images, labels, np.full(SHOWN, step / 8))
    first = np.asarray(student.labels)
    np.testing.assert_array_equal(first, np.repeat([2, 1], SHOWN))
    np.testing.assert_array_equal(student.images[:, 0, 0, 0], first)

    blank = student._replace(images=student.images.at[SHOWN:].set(jnp.nan))
    taught = jax.jit(gan.teach)(blank, jnp.int32(SHOWN), jax.random.key(0))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(taught.params))


@pytest.mark.slow
def test_student_and_generator_learn_what_teachers_like():
    """Teachers who like bright images: after some steps they are brighter."""
    gan = gan_of(
        g_pate__generator_learning_rate=0.02, g_pate__steps=40,
        pate_gan__student_learning_rate=0.02, pate_gan__student_steps=5,
    )  # fmt: skip
    state, _ = started(gan)
    batch = audit.canaries.batch(
        np.full((24, *gan.config.data.shape), 255, np.uint8), gan.config.data, (8, 3)
    )

    def likes(self, params, images, labels):
        return (jnp.mean(images, axis=(1, 2, 3)) > 0).astype(jnp.float32)

    def brightness(state):
        fakes = gan.fakes(state.generator.params, jax.random.key(2))
        return float(jnp.mean(fakes.images))

    before = brightness(state)

    def summed(self, votes, key):
        return jnp.sum(votes, axis=0)

    with (
        mock.patch.object(pate_gan.Voters, 'say', likes),
        mock.patch.object(PateGan, 'release', summed),
    ):
        step = jax.jit(gan.step)
        for t in range(40):
            key = np.full(4, t, np.uint32)
            state, _ = step(state, batch, np.zeros(8, np.uint32), key)
    assert brightness(state) > before + 0.2


@pytest.mark.slow
@pytest.mark.parametrize('variety', [0.0, 10.0])
def test_variety_keeps_images_of_a_class_apart(variety):
    gan = gan_of(
        g_pate__generator_learning_rate=0.02,
        g_pate__steps=40,
        pate_gan__variety=variety,
    )
    state, _ = started(gan)
    follow = jax.jit(gan.follow)
    z = jax.random.normal(jax.random.key(1), (20, 3))

    def apart(state):
        params, labels = state.generator.params, jnp.zeros(20, int)
        images = gan.sampler.generator.apply(params, z, labels)
        return float(jnp.mean(jnp.std(images, axis=0)))

    before = apart(state)
    for t in range(30):
        state = follow(state, jax.random.key(t))
    assert (apart(state) > 1.5 * before) == (variety > 0)


@pytest.mark.slow
@pytest.mark.parametrize('fields', [{}, PRINTED], ids=['default', 'printed'])
def test_a_release_verifies(tmp_path, fields):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    small = {
        'teachers': 4, 'batch_size': 2, 'width': 4, 'fc_width': 4, 'steps': 2,
        'fakes': 4, 'cell': 1,
    }  # fmt: skip
    made = tiny_runs.one_shot(
        source,
        method='pate_gan',
        **{f'g_pate__{k}': v for k, v in small.items()},
        **fields,
    )
    pipeline = Pipeline(made, tmp_path / 'run', entropy=tiny_runs.ENTROPY)
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
    images, _ = load_release(tmp_path / 'run' / 'release').sample(10, seed=0)
    assert images.shape == (10, 8, 8, 1)
    checks = verify(tmp_path / 'run' / 'release').checks
    assert all(check.passed is not False for check in checks), checks
