"""G-PATE: every query charged, disjoint parts, teachers that learn, a student that follows."""

import functools
import math
import operator
import tempfile
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from g_pate_cases import audited, gan_of, mixed, settings

from dpaf_jax.methods import g_pate
from dpaf_jax.methods.g_pate import phase
from dpaf_jax.methods.g_pate.phase import GPatePhase
from dpaf_jax.methods.g_pate.plan import answers_plan
from dpaf_jax.methods.g_pate.student import GPate
from dpaf_jax.methods.g_pate.teachers import Parts, Teachers
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run
from dpaf_jax.verify.accountant import gaussian_epsilon

# --- the plan -------------------------------------------------------------------------


@pytest.mark.parametrize('epsilon', [1.0, 10.0])
def test_every_query_of_every_fake_of_every_step_is_charged(epsilon):
    plan = g_pate.plan(settings(privacy__epsilon=epsilon), 40)
    (m,) = plan.mechanisms
    assert (m.sampling_prob, m.steps) == (1, 4 * 6 * 2)
    assert m.l2_sensitivity == pytest.approx(math.sqrt(2 + 1 / 9))
    assert plan.overflow_delta == 0 and plan.guarantee == CERTIFIED
    # DESIGN's formulas: the composition's squared mu is that of both checks of each query.
    sigma2 = m.noise_std
    mu = math.sqrt(48 * (1 / (3 * sigma2) ** 2 + 2 / sigma2**2))
    exact = gaussian_epsilon(mu, plan.delta)
    assert exact <= plan.epsilon <= epsilon and exact > 0.999 * epsilon


def test_queries_without_a_check_are_not_charged_for_one():
    config = settings(g_pate__threshold=0.0)
    (m,) = tiny.plan(config).mechanisms
    assert m.l2_sensitivity == math.sqrt(2) and 'highest' not in m.kind
    gan = gan_of(g_pate__threshold=0.0)
    fn = parallel.pmapped(gan.release, jax.local_devices()[:1])
    ballot = fn(np.zeros((1, 8, 6, 2), np.int32), np.zeros((1, 8), np.uint32))
    assert ballot.highest is None
    values, passed = jax.jit(voting.confident_gnmax, static_argnums=1)(ballot, 4.0)
    assert passed.all() and np.all(values != 0)


def test_what_is_published_is_certified_and_the_same():
    plans = [
        tiny.plan(settings(privacy__guarantee=guarantee))
        for guarantee in ('certified', 'as_published')
    ]
    assert plans[0] == plans[1]
    assert plans[0].guarantee == CERTIFIED and plans[0].claimed_epsilon is None


def test_without_privacy_votes_are_not_noised():
    gan = gan_of(privacy__epsilon=math.inf)
    assert gan.mechanism.noise_std == 0 and gan.grid is None


def test_more_teachers_than_records_are_refused():
    with pytest.raises(UserError, match=r'config\.g_pate\.teachers: is 41, for 40'):
        g_pate.plan(settings(g_pate__teachers=41), 40)


@pytest.mark.parametrize('ratio', [0.1, 3.0, 16.0])
@pytest.mark.parametrize('sigma', [0.1, 1e4])
def test_a_vote_is_whole_on_the_grid(ratio, sigma):
    gan = gan_of(sigma, g_pate__threshold_noise=ratio)
    assert gan.grid.units(jnp.float32(1)) * gan.grid.spacing == 1
    largest = gan.mechanism.noise_std * max(ratio, 1)  # of the two noises of a query
    assert largest / gan.grid.spacing <= 2**18


# --- who teaches whom -----------------------------------------------------------------


@pytest.mark.parametrize(('sensitivity', 'is_heard'), [(20.0, True), (2000.0, False)])
def test_noise_in_which_no_vote_is_heard_is_refused(sensitivity, is_heard):
    """A grid that fits it would round votes to nothing, and the run would learn of noise."""
    config = tiny.config(method='datalens', privacy__epsilon=0.1)
    asked = {'name': 'signs', 'kind': 'signs', 'steps': 400}
    make = functools.partial(
        answers_plan, config, 40, l2_sensitivity=sensitivity, **asked
    )
    if is_heard:
        assert 20 * 100 < make()['signs'].noise_std < 2**18
        return
    with pytest.raises(UserError, match='asks for noise of [0-9]* votes'):
        make()


def test_parts_are_disjoint_and_hold_everybody():
    parts = Parts.of(np.arange(40), 40, 7)
    assert parts.slots.shape == (7, 6)
    held = parts.slots[parts.slots >= 0]
    np.testing.assert_array_equal(np.sort(held), np.arange(40))
    for record in range(40):
        assert record in parts.slots[record % 7]


def test_an_empty_record_moves_nobody_to_another_teacher_or_turn():
    everybody = np.arange(40)
    whole = Parts.of(everybody, 40, 7)
    for gone in (0, 17, 39):
        index = np.delete(everybody, gone)
        rest = Parts.of(index, 40, 7)
        named = np.where(rest.slots >= 0, index[rest.slots], -1)
        expected = np.where(whole.slots == gone, -1, whole.slots)
        np.testing.assert_array_equal(named, expected)


def test_every_record_of_a_part_has_its_turn():
    parts = Parts.of(np.arange(38), 38, 4)  # 10 slots, two of them empty
    seen = np.zeros(38, int)
    for step in range(5):
        draw = parts.batch(step, 4)
        assert draw.indices.shape == (4, 4)
        np.add.at(seen, draw.indices[~draw.is_padding_example], 1)
    assert seen.min() == seen.max() == 2
    assert parts.batch(3, 99).indices.shape == (4, 10)


# --- training -------------------------------------------------------------------------


@functools.cache
def trained(devices=1, unrolls=True, **fields):
    """(run, start, end) of a whole phase."""
    config = settings(**fields)
    run = tiny.run(tempfile.gettempdir(), config, devices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, 'unrolls', property(lambda self: unrolls))
        phase = GPatePhase(run, GPate(config, run.plan))
        start = phase.init()
        state, step = parallel.replicate(start, run.devices), 0
        while step < phase.total_steps:
            state, step, metrics = phase.window(state, step)
            assert phase.charged(step)['votes'] == 12 * step
        assert set(metrics) == {'queries_passed', 'student_gradient_norm'}
        return run, start, parallel.unreplicate(state)


@pytest.mark.slow
def test_single_steps_equal_a_scan_and_eight_devices():
    run, start, end = trained()
    assert run.plan['votes'].steps == 4 * 12 and end.generator.steps == 4
    for name in ('teachers', 'generator.params', 'generator.ema_params'):
        part = operator.attrgetter(name)
        same = jax.tree.map(np.array_equal, part(start), part(end))
        assert not all(jax.tree.leaves(same))
    tiny.assert_close(end, trained(unrolls=False)[2])
    tiny.assert_close(end, trained(devices=8)[2])


def test_teachers_learn_to_tell_reals_from_fakes():
    gan = gan_of(g_pate__teacher_learning_rate=0.01)
    side, key = gan.teachers, jax.random.key(0)
    data = tiny.dataset(gan.config)
    mine = ClipBatch(
        data.images[:5] // 4, data.labels[:5], np.zeros(5, bool), np.arange(5)
    )
    fakes, labels = jnp.ones((6, 8, 8, 1)), jnp.arange(6) % 3
    state = jax.jit(side.init)(key)
    learn = jax.jit(side.learn)
    for _ in range(50):
        state = learn(state, mine, fakes, labels)
    apply = jax.jit(side.network.apply)
    answers = apply(state[0], fakes, labels)
    reals = apply(state[0], mine.images / 127.5 - 1, mine.labels)
    assert reals.min() > answers.max()


@pytest.mark.parametrize('cell', [1, 2])
def test_teachers_see_no_detail_that_fakes_cannot_have(cell):
    """By it they would tell all fakes, and no direction that is asked for leads there."""
    side = gan_of(g_pate__cell=cell, data__image_size=16).teachers
    images = np.random.default_rng(0).normal(size=(4, 16, 16, 1)).astype(np.float32)
    board = np.indices((16, 16)).sum(axis=0)[..., None] % 2 - 0.5
    params, _ = jax.jit(side.init)(jax.random.key(0))
    plain, detailed = (
        side.network.apply(params, each, np.arange(4) % 3)
        for each in (images, images + board)
    )
    assert np.allclose(plain, detailed, atol=1e-5) == (cell == 2)


def test_a_part_without_records_teaches_from_fakes_alone():
    gan = gan_of()
    side = gan.teachers
    images, three = np.zeros((3, 8, 8, 1), np.uint8), np.zeros(3, int)
    nobody = ClipBatch(images, three, np.ones(3, bool), three)

    @jax.jit
    def learnt(key):
        return side.learn(side.init(key), nobody, jnp.ones((2, 8, 8, 1)), 0)

    state = learnt(jax.random.key(0))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))


def test_a_vote_is_for_the_way_in_which_the_discriminators_loss_rises():
    gan = gan_of(g_pate__clip=1e-6, g_pate__bins=2)
    side, rng = gan.teachers, np.random.default_rng(0)
    params, _ = jax.jit(side.init)(jax.random.key(0))
    fakes = rng.normal(size=(4, 8, 8, 1)).astype(np.float32)
    labels, r = np.arange(4) % 3, rng.normal(size=(4, 64, 5)).astype(np.float32)
    votes, loss = (
        jax.jit(side.vote)(params, fakes, labels, r),
        jax.jit(side.loss_on_fakes),
    )
    for k in range(5):
        ends = [
            loss(params, fakes + s * r[..., k].reshape(fakes.shape), labels)
            for s in (1e-2, -1e-2)
        ]
        np.testing.assert_array_equal(votes[:, k], ends[0] > ends[1])


@pytest.mark.slow
def test_the_student_follows_the_votes():
    gan = gan_of(g_pate__generator_learning_rate=1e-3)
    state = jax.device_get(jax.jit(gan.init)(jax.random.key(0)))
    fakes = gan.fakes(state.generator.params, jax.random.key(1))
    rng = np.random.default_rng(0)
    histogram = 8.0 * jax.nn.one_hot(rng.integers(4, size=(6, 2)), 4)
    ballot = voting.Ballot(histogram, jnp.full((6, 2), 8.0))
    values, passed = voting.confident_gnmax(ballot, 4.0)
    assert passed.all()
    moves = np.einsum('mk,mdk->md', values, fakes.questions)
    after, _ = gan.learn(state, fakes, ballot)
    images = gan.sampler.generator.apply(after.generator.params, fakes.z, fakes.labels)
    assert np.vdot(images - fakes.images, moves.reshape(images.shape)) > 0
    # Nobody agrees: nobody moves.
    still, _ = gan.learn(state, fakes, ballot._replace(highest=jnp.zeros((6, 2))))
    tiny.assert_close(still.generator.params, state.generator.params)


def questions(gan):
    """Of the first fakes."""
    made = jax.jit(lambda key: gan.fakes(gan.sampler.init(key), key).questions)
    return np.asarray(made(jax.random.key(0)))


def test_directions_are_of_variance_one_over_k_and_smooth_where_asked():
    made = {}
    for cell in (1, 2):
        gan = gan_of(g_pate__cell=cell, g_pate__fakes=64, data__image_size=16)
        made[cell] = questions(gan)
        assert made[cell].shape == (64, 256, 2)
    assert np.var(made[1]) == pytest.approx(1 / 2, rel=0.1)
    rows = made[2].reshape(64, 16, 16, 2)
    assert np.mean(rows[:, 3] * rows[:, 4]) > 0.5 * np.mean(rows[:, 3] ** 2)


def test_without_projections_each_cell_is_voted_on_and_charged():
    fields = {'g_pate__projections': 0, 'g_pate__cell': 2, 'data__image_size': 16}
    gan = gan_of(**fields, g_pate__fakes=3)
    assert gan.queries == 3 * 64
    plan = g_pate.plan(settings(**fields, g_pate__fakes=3, g_pate__steps=5), 40)
    assert plan['votes'].steps == 5 * 3 * 64
    made = questions(gan)
    assert made.shape == (3, 256, 64)
    places = made[0].reshape(16, 16, 64)
    # A direction is one cell, faded into its neighbours, and together they see it all.
    top = [np.unravel_index(places[..., i].argmax(), (16, 16)) for i in (0, 9, 63)]
    assert [(x // 2, y // 2) for x, y in top] == [(0, 0), (1, 1), (7, 7)]
    np.testing.assert_allclose(made.sum(axis=2), 1, rtol=1e-5)


def test_the_student_cannot_show_what_smooth_directions_do_not_see():
    board = (np.indices((16, 16)).sum(axis=0) % 2 * 2 - 1).astype(np.float32)
    hidden = {}
    for cell in (1, 2):
        sampler = gan_of(g_pate__cell=cell, data__image_size=16).sampler
        params = jax.jit(sampler.init)(jax.random.key(0))
        params = jax.tree.map(lambda x: 5 * np.asarray(x), params)
        made = jax.jit(sampler.sample)(params, jax.random.key(1), np.arange(6) % 3)
        assert made.shape == (6, 16, 16, 1) and np.abs(made).max() <= 1 + 1e-5
        assert np.std(made) > 0.01
        hidden[cell] = np.abs(np.mean(np.asarray(made)[..., 0] * board, axis=(1, 2)))
    assert hidden[2].max() < 0.1 * hidden[1].max()


def test_a_cell_too_large_for_the_layers_is_refused_by_the_plan():
    with pytest.raises(UserError, match=r'config\.networks\.layers'):
        g_pate.plan(settings(g_pate__cell=4), 40)


# --- memory ---------------------------------------------------------------------------


def test_memory_is_stated_and_what_does_not_fit_is_refused(capsys):
    config = settings()
    run = tiny.run(tempfile.gettempdir(), config)
    phase._check_devices(Teachers(config), run)
    assert '8 teachers take 0.00 GiB on each of 1 device(s)' in capsys.readouterr().out
    with (
        mock.patch.object(phase, 'device_memory', lambda _: 1000.0),
        pytest.raises(UserError, match=r'config\.g_pate\.teachers: is 8: .* GiB'),
    ):
        phase._check_devices(Teachers(config), run)
    run.devices = jax.local_devices()[:3]
    with pytest.raises(UserError, match='is 8, for 3 devices'):
        phase._check_devices(Teachers(config), run)


# --- the audit ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_faults():
    assert not audited('g_pate', (1, 8))

    with mock.patch.object(GPate, 'query', mixed(GPate.query)):
        assert 'sensitivity' in audited('g_pate')
    release = voting.release
    with mock.patch.object(
        voting, 'release', lambda c, k, std, ratio: release(c, k, std / 2, ratio)
    ):
        assert 'noise level' in audited('g_pate')
