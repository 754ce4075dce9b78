"""G-PATE: a record has one teacher, a teacher one vote; every query charged; the student."""

import dataclasses
import functools
import json
import math
import tempfile
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax import data_dependent, parallel
from dpaf_jax.auditing import canaries
from dpaf_jax.errors import UserError
from dpaf_jax.methods import g_pate, g_pate_audit
from dpaf_jax.methods.g_pate import GPate, GPatePhase
from dpaf_jax.parallel import Split
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.independent import gaussian_epsilon
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.run import Run
from dpaf_jax.teachers import Parts, Teachers
from dpaf_jax.units import Units

pytestmark = pytest.mark.usefixtures('quick_compilation')

DEVICES = [1, 8]
STEPS = 4


def settings(**fields):
    return tiny.config(method='g_pate', **fields)


def gan_of(sigma=1.0, **fields):
    config = settings(**fields)
    return GPate(config, tiny.plan(config, sigma))


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
    ballot = fn(np.zeros((1, 8, 6, 2), np.int32), np.zeros((1, 2), np.uint32))
    assert ballot.highest is None
    values, passed = voting.confident_gnmax(ballot, 4.0)
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


# --- who teaches whom -----------------------------------------------------------------


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


# --- one record, one teacher, one vote ------------------------------------------------


@functools.cache
def compiled(gan, number):
    def fakes(generator, key):
        return gan.fakes(generator, public_key(key))

    def counted(votes):
        made = parallel.total(voting.count(votes, gan.config.g_pate.bins, gan.grid))
        return made.rounded()

    devices = jax.local_devices()[:number]
    functions = fakes, gan.query, counted, gan.release, gan.learn
    return [parallel.pmapped(fn, devices) for fn in functions]


def histories(gan, number, datasets, parts_of=Parts.of):
    """The same public run on several data sets: what their teachers were and voted.

    All students learn from the ballots of the first: a guarantee must hold for whatever
    was released before.

    Returns:
        For each data set, by step: (teachers on the host, histograms [m, k, B]).
    """
    g, devices, keys = gan.config.g_pate, jax.local_devices()[:number], tiny.keys()
    make_fakes, query, counted, release, learn = compiled(gan, number)
    start = jax.device_get(gan.init(jax.random.key(3)))
    state = parallel.replicate(start, devices)
    teachers = [state.teachers.tree for _ in datasets]
    made = [[] for _ in datasets]
    for step in range(STEPS):
        key = np.broadcast_to(keys.public('step', step), (number, 4))
        fakes, votes = make_fakes(state.generator, key), []
        for i, data in enumerate(datasets):
            draw = parts_of(data.index, 40, g.teachers).batch(step, g.batch_size)
            images, labels = data.images[draw.indices], data.labels[draw.indices]
            units = Units(images, labels, draw.is_padding_example)
            dealt = Units(*(parallel.deal(x, number, 0, 0) for x in units))
            teachers[i], vote = query(teachers[i], dealt, fakes)
            votes.append(vote)
            host = parallel.unreplicate(Split(teachers[i])).tree
            made[i].append((host, parallel.unreplicate(counted(vote))))
        noise = np.broadcast_to(keys.noise('votes', step), (number, 2))
        state, _ = learn(state, fakes, release(votes[0], noise))
    return made


def neighbours(gone):
    """A data set and the same with one record empty; the record is a wild one."""
    config = settings()
    whole = tiny.dataset(config)
    images = whole.images.copy()
    images[gone] = canaries.extremes(config.data, 1)[0]
    whole = dataclasses.replace(whole, images=images)
    rest = dataclasses.replace(
        whole,
        images=np.delete(whole.images, gone, axis=0),
        labels=np.delete(whole.labels, gone),
        index=np.delete(whole.index, gone),
    )
    return whole, rest


def others_moved(one, two, teacher):
    """Whether any other teacher's state differs in a single bit."""
    same = jax.tree.map(
        lambda a, b: np.array_equal(
            np.delete(a, teacher, axis=0), np.delete(b, teacher, axis=0)
        ),
        one,
        two,
    )
    return not all(jax.tree.leaves(same))


def far(one, two):
    """Per query, how far histograms are apart in l2, and their highest bins."""
    bins = np.linalg.norm(one - two, axis=-1)
    return bins.max(), np.abs(one.max(axis=-1) - two.max(axis=-1)).max()


@pytest.mark.parametrize('number', DEVICES)
@pytest.mark.parametrize('rate', [1e-3, 30.0])
def test_a_record_moves_its_own_teacher_alone_and_one_vote_at_every_step(number, rate):
    # At the second rate teachers run wild, and remember it.
    gan, gone = gan_of(g_pate__teacher_learning_rate=rate), 21
    one, two = histories(gan, number, neighbours(gone))
    mine, differed = gone % 8, False
    for (a, votes_a), (b, votes_b) in zip(one, two, strict=True):
        assert not others_moved(a, b, mine)
        bins, highest = far(votes_a, votes_b)
        assert bins <= math.sqrt(2) + 1e-6 and highest <= 1 + 1e-6
        differed = differed or bins > 0
    moved = [
        not np.array_equal(x[mine], y[mine])
        for x, y in zip(*(jax.tree.leaves(h[-1][0]) for h in (one, two)), strict=True)
    ]
    assert any(moved) and (differed or rate < 1)


def test_a_teacher_that_votes_nonsense_moves_no_more():
    vote, gone = Teachers.vote, 21

    def wild(self, params, *args):
        """Votes for the last bins, and NaN, once it has learnt from a steep record."""
        votes = vote(self, params, *args)
        size = sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(params))
        return jnp.where(size * 1e6 % 2 < 1, votes, 3 - votes)

    gan = gan_of(1.1)
    with mock.patch.object(Teachers, 'vote', wild):
        one, two = histories(gan, 1, neighbours(gone))
    for (a, votes_a), (b, votes_b) in zip(one, two, strict=True):
        assert not others_moved(a, b, gone % 8)
        assert far(votes_a, votes_b)[0] <= math.sqrt(2) + 1e-6


def test_parts_by_place_in_the_file_are_found_out():
    def by_place(index, records, teachers):
        return Parts.of(np.arange(len(index)), records, teachers)

    gan = gan_of(1.2, g_pate__teacher_learning_rate=30.0)
    one, two = histories(gan, 1, neighbours(21), by_place)
    assert others_moved(one[-1][0], two[-1][0], 21 % 8)
    assert max(far(a, b)[0] for (_, a), (_, b) in zip(one, two, strict=True)) > 1.5


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


def assert_close(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_single_steps_equal_a_scan_and_eight_devices():
    run, start, end = trained()
    assert run.plan['votes'].steps == 4 * 12 and end.steps == 4
    for name in ('teachers', 'generator', 'average'):
        same = jax.tree.map(np.array_equal, getattr(start, name), getattr(end, name))
        assert not all(jax.tree.leaves(same))
    assert_close(end, trained(unrolls=False)[2])
    assert_close(end, trained(devices=8)[2])


def test_teachers_learn_to_tell_reals_from_fakes():
    gan = gan_of(g_pate__teacher_learning_rate=0.01)
    side, key = gan.teachers, jax.random.key(0)
    data = tiny.dataset(gan.config)
    mine = Units(data.images[:5] // 4, data.labels[:5], np.zeros(5, bool))
    fakes, labels = jnp.ones((6, 8, 8, 1)), jnp.arange(6) % 3
    state = side.init(key)
    learn = jax.jit(side.learn)
    for _ in range(50):
        state = learn(state, mine, fakes, labels)
    answers = side.network.apply(state[0], fakes, labels)
    reals = side.network.apply(state[0], mine.images / 127.5 - 1, mine.labels)
    assert reals.min() > answers.max()


def test_a_part_without_records_teaches_from_fakes_alone():
    gan = gan_of()
    side = gan.teachers
    nobody = Units(np.zeros((3, 8, 8, 1), np.uint8), np.zeros(3, int), np.ones(3, bool))
    state = side.learn(side.init(jax.random.key(0)), nobody, jnp.ones((2, 8, 8, 1)), 0)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))


def test_a_vote_is_for_the_way_in_which_the_discriminators_loss_rises():
    gan = gan_of(g_pate__clip=1e-6, g_pate__bins=2)
    side, coins = gan.teachers, np.random.default_rng(0)
    params, _ = side.init(jax.random.key(0))
    fakes = coins.normal(size=(4, 8, 8, 1)).astype(np.float32)
    labels, r = np.arange(4) % 3, coins.normal(size=(4, 64, 5)).astype(np.float32)
    votes = side.vote(params, fakes, labels, r)
    for k in range(5):
        ends = [
            side.loss_on_fakes(
                params, fakes + s * r[..., k].reshape(fakes.shape), labels
            )
            for s in (1e-2, -1e-2)
        ]
        np.testing.assert_array_equal(votes[:, k], ends[0] > ends[1])


def test_the_student_follows_the_votes():
    gan = gan_of(g_pate__generator_learning_rate=1e-3)
    state = jax.device_get(gan.init(jax.random.key(0)))
    fakes = gan.fakes(state.generator, jax.random.key(1))
    coins = np.random.default_rng(0)
    histogram = 8.0 * jax.nn.one_hot(coins.integers(4, size=(6, 2)), 4)
    ballot = voting.Ballot(histogram, jnp.full((6, 2), 8.0))
    values, passed = voting.confident_gnmax(ballot, 4.0)
    assert passed.all()
    moves = np.einsum('mk,mdk->md', values, fakes.projections)
    after, _ = gan.learn(state, fakes, ballot)
    images = gan.student.generator.apply(after.generator, fakes.z, fakes.labels)
    assert np.vdot(images - fakes.images, moves.reshape(images.shape)) > 0
    # Nobody agrees: nobody moves.
    still, _ = gan.learn(state, fakes, ballot._replace(highest=jnp.zeros((6, 2))))
    assert_close(still.generator, state.generator)


def test_directions_are_of_variance_one_over_k_and_smooth_where_asked():
    made = {}
    for cell in (1, 2):
        gan = gan_of(g_pate__cell=cell, g_pate__fakes=64, data__image_size=16)
        key = jax.random.key(0)
        generator = gan.student.init(key)
        made[cell] = np.asarray(gan.fakes(generator, key).projections)
        assert made[cell].shape == (64, 256, 2)
    assert np.var(made[1]) == pytest.approx(1 / 2, rel=0.1)
    rows = made[2].reshape(64, 16, 16, 2)
    assert np.mean(rows[:, 3] * rows[:, 4]) > 0.5 * np.mean(rows[:, 3] ** 2)


def test_the_student_cannot_show_what_smooth_directions_do_not_see():
    board = (np.indices((16, 16)).sum(axis=0) % 2 * 2 - 1).astype(np.float32)
    hidden = {}
    for cell in (1, 2):
        student = gan_of(g_pate__cell=cell, data__image_size=16).student
        params = jax.tree.map(lambda x: 5 * x, student.init(jax.random.key(0)))
        made = student.sample(params, jax.random.key(1), jnp.arange(6) % 3)
        assert made.shape == (6, 16, 16, 1) and np.abs(made).max() <= 1 + 1e-5
        assert np.std(made) > 0.01
        hidden[cell] = np.abs(np.mean(np.asarray(made)[..., 0] * board, axis=(1, 2)))
    assert hidden[2].max() < 0.1 * hidden[1].max()


def test_a_cell_too_large_for_the_layers_is_refused_by_the_plan():
    with pytest.raises(UserError, match=r'config\.networks\.layers'):
        g_pate.plan(settings(g_pate__cell=4), 40)


def watched(tmp_path, start=0, stop=4):
    """(config, metrics of all windows, rows) of a phase whose teachers are watched."""
    config = settings(g_pate__agreement=True)
    run = tiny.run(tmp_path, config)
    phase = GPatePhase(run, GPate(config, run.plan))
    state, step, seen = parallel.replicate(phase.init(), run.devices), start, {}
    while step < stop:
        state, step, metrics = phase.window(state, step)
        seen |= metrics
    path = tmp_path / 'nonprivate' / 'agreement' / 'history.jsonl'
    return run, seen, [json.loads(line) for line in path.read_text().splitlines()]


def test_agreement_goes_to_the_nonprivate_folder_alone(tmp_path):
    run, metrics, rows = watched(tmp_path)
    assert set(metrics) == {'queries_passed', 'student_gradient_norm'}
    assert [path.name for path in tmp_path.iterdir()] == ['nonprivate']
    assert [row['step'] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert 1 >= row['nonprivate_first'] >= 0.25
        assert row['nonprivate_first'] + row['nonprivate_second'] <= 1 + 1e-6
        assert 'NOT PRIVATE' in row['note'] and 'no guarantee' in row['note']
    # Every query is asked and charged: at most the data-independent bound of all steps.
    spent = [row['nonprivate_epsilon_data_dependent'] for row in rows]
    assert spent == sorted(spent)
    queries = run.plan['votes'].steps
    most = queries / run.plan['votes'].noise_multiplier ** 2 / 2
    assert 0 < rows[-1]['nonprivate_renyi'][0] <= 2 * most


def test_a_resumed_run_counts_no_step_twice(tmp_path):
    _, _, whole = watched(tmp_path / 'whole')
    watched(tmp_path / 'other', stop=3)
    _, _, rows = watched(tmp_path / 'other', start=2)
    # The state is another one than it would be, but steps and sums go on from the row.
    assert [row['step'] for row in rows] == [1, 2, 3, 4]
    assert rows[:2] == whole[:2]
    sums = [row['nonprivate_renyi'][0] for row in rows]
    assert sums == sorted(sums)
    assert sums[3] - sums[1] == pytest.approx(
        whole[3]['nonprivate_renyi'][0] - whole[1]['nonprivate_renyi'][0], rel=0.5
    )


def test_nobody_asks_and_nothing_is_counted(tmp_path):
    config = settings()
    run = tiny.run(tmp_path, config)
    phase = GPatePhase(run, GPate(config, run.plan))
    with mock.patch.object(data_dependent, 'renyi_of_queries') as counted:
        state = parallel.replicate(phase.init(), run.devices)
        _, _, metrics = phase.window(state, 0)
    counted.assert_not_called()
    assert set(metrics) == {'queries_passed', 'student_gradient_norm'}
    assert not list(tmp_path.iterdir())


# --- memory ---------------------------------------------------------------------------


def test_memory_is_stated_and_what_does_not_fit_is_refused(capsys):
    config = settings()
    run = tiny.run(tempfile.gettempdir(), config)
    g_pate._check_devices(Teachers(config), run)
    assert '8 teachers take 0.00 GiB on each of 1 device(s)' in capsys.readouterr().out
    with (
        mock.patch.object(g_pate, 'device_memory', lambda _: 1000.0),
        pytest.raises(UserError, match=r'config\.g_pate\.teachers: is 8: .* GiB'),
    ):
        g_pate._check_devices(Teachers(config), run)
    run.devices = jax.local_devices()[:3]
    with pytest.raises(UserError, match='is 8, for 3 devices'):
        g_pate._check_devices(Teachers(config), run)


# --- the audit ------------------------------------------------------------------------


def audited(devices=(1,)):
    config = settings(g_pate__teacher_learning_rate=1.0)  # one record turns many votes
    plan = tiny.plan(config)
    (target,) = g_pate_audit.audit_targets(config, plan, devices)
    return tiny.audit_failures(target, plan)


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_faults():
    assert not audited((1, 8))

    query = GPate.query

    def mixed(self, teachers, parts, fakes):
        """Every teacher sees the records of all."""
        number = len(parts.labels)
        shared = (x.reshape(1, -1, *x.shape[2:]).repeat(number, 0) for x in parts)
        return query(self, teachers, Units(*shared), fakes)

    with mock.patch.object(GPate, 'query', mixed):
        assert 'sensitivity' in audited()
    release = voting.release
    with mock.patch.object(
        voting, 'release', lambda c, k, std, ratio: release(c, k, std / 2, ratio)
    ):
        assert 'noise level' in audited()
