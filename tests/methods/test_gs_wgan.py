"""GS-WGAN: a record reaches one critic, and no critic moves gradients by more than said."""

import dataclasses
import functools
import math
from unittest import mock

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from adversaries import deal, some_units
from scipy import stats

from dpaf_jax.audit.harness import wild_state
from dpaf_jax.audit.methods import gs_wgan as gs_wgan_audit
from dpaf_jax.methods import gs_wgan
from dpaf_jax.methods.gs_wgan import turn
from dpaf_jax.methods.gs_wgan.phase import GsWganPhase
from dpaf_jax.methods.gs_wgan.turn import GsWgan
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.keys import record_keys
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.accountant import gaussian_epsilon

SMALL = {'method': 'gs_wgan', 'gs_wgan__l2_clip_norm': 0.02}
BOUND = 2 * 0.02 * math.sqrt(6)


def settings(**fields):
    return tiny.config(**{**SMALL, **fields})


def method_of(number=1, sigma=1.0, **fields):
    config = settings(**fields)
    return GsWgan(config, tiny.plan(config, sigma), number)


# --- the plan -------------------------------------------------------------------------


def test_a_critic_is_charged_for_its_own_turns_without_amplification():
    plan = gs_wgan.plan(settings(gs_wgan__generator_steps=12), 40)
    (m,) = plan.mechanisms
    # 40 records, 8 behind each of 5 critics, 12 turns: three for the first two of them.
    assert (m.sampling_prob, m.steps) == (1.0, 3)
    assert m.l2_sensitivity == pytest.approx(BOUND)
    gaussian = dp_accounting.GaussianDpEvent(m.noise_multiplier)
    assert m.event() == dp_accounting.SelfComposedDpEvent(gaussian, 3)
    exact = gaussian_epsilon(math.sqrt(3) / m.noise_multiplier, plan.delta)
    assert plan.guarantee == CERTIFIED and plan.overflow_delta == 0
    assert 0.98 * 10 < exact <= plan.epsilon <= 10
    assert accounting.epsilon_pld(plan.dp_event, plan.delta) <= 10


def test_the_published_setting_is_far_from_its_epsilon():
    # n_D = 1000, T = 20 000, B = 32, noise of 1.07 C.
    multiplier = 1.07 / (2 * math.sqrt(32))
    assert gaussian_epsilon(math.sqrt(20) / multiplier, 1e-5) == pytest.approx(
        1319, abs=1
    )


def test_as_published_certifies_nothing():
    made = gs_wgan.plan(settings(privacy__guarantee='as_published'), 40)
    (m,) = made.mechanisms
    assert (m.sampling_prob, m.steps, m.l2_sensitivity) == (1 / 5, 2 * 6, 0.02)
    assert made.epsilon is None and made.claimed_epsilon == pytest.approx(10, rel=0.01)


def test_turns_together_are_charged_to_every_critic_that_takes_part():
    # 40 records, 5 critics, 12 turns of 2: 24 of single critics, five for the first four.
    fields = {'gs_wgan__generator_steps': 12, 'gs_wgan__critics_per_turn': 2}
    config = settings(**fields)
    (m,) = gs_wgan.plan(config, 40).mechanisms
    assert (m.steps, m.l2_sensitivity) == (5, pytest.approx(BOUND))
    run = tiny.run('unused', config)
    phase = GsWganPhase(run, GsWgan(config, run.plan, 1))
    took = np.zeros(5, int)
    for step in range(12):
        turn = phase._whose(step)
        assert len(set(turn)) == 2  # nobody twice: 2C sqrt(B) is for a turn
        took[turn] += 1
        assert took.max() == phase.charged(step + 1)['gradient']


def test_as_published_a_critic_answers_alone():
    config = settings(privacy__guarantee='as_published', gs_wgan__critics_per_turn=2)
    run = tiny.run('unused', config)
    phase = GsWganPhase(run, GsWgan(config, run.plan, 1))
    assert all(len(phase._whose(step)) == 1 for step in range(9))


@pytest.mark.parametrize(
    ('fields', 'match'),
    [
        ({'gs_wgan__batch_size': 41}, 'config.gs_wgan.batch_size: asks for 41'),
        ({'gs_wgan__critics_per_turn': 6}, 'critics_per_turn: is 6, of 5 critics'),
    ],
)
def test_critics_that_there_are_not_are_refused(fields, match):
    with pytest.raises(UserError, match=match):
        gs_wgan.plan(settings(**fields), 40)


# --- sensitivity and noise ------------------------------------------------------------


def critics_of(method, number):
    shapes = jax.eval_shape(method.adversaries.init, jax.random.key(0))
    states = [wild_state(shapes, ['discriminator'], i) for i in range(number)]
    return [state.discriminator for state in states]


def queries(method, number=6):
    fakes = np.random.default_rng(0).uniform(-1, 1, (6, 8, 8, 1)).astype(np.float32)
    query = jax.jit(method.query)
    labels = np.arange(6) % 3
    return [
        tiny.vector(query(stacked([c]), fakes, labels))
        for c in critics_of(method, number)
    ]


def stacked(critics):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *critics)


def furthest(made):
    return max(np.linalg.norm(a - b) for a in made for b in made)


def test_no_two_critics_are_further_apart_than_the_sensitivity():
    method = method_of()
    assert method.mechanism.l2_sensitivity == pytest.approx(BOUND)
    # Turned to the opposite, which some record may do to a critic: the whole bound.
    made = queries(method)
    made += [-q for q in made]
    assert 0.9 * BOUND < furthest(made) <= BOUND


def test_of_critics_that_answer_together_each_moves_the_sum_by_its_own():
    method = method_of()
    fakes = np.random.default_rng(0).uniform(-1, 1, (6, 8, 8, 1)).astype(np.float32)
    labels, (one, other, third) = np.arange(6) % 3, critics_of(method, 3)
    query = jax.jit(method.query)
    alone = [query(stacked([c]), fakes, labels).units() for c in (one, other, third)]
    for i, pair in enumerate(([one, other], [one, third])):
        both = query(stacked(pair), fakes, labels).units()
        np.testing.assert_array_equal(both, alone[0] + alone[1 + i])


def test_an_empty_slot_has_nobodys_coins():
    """It points at the first record, which is behind another critic.

    A weight of 0 would not keep that record's coins out: 0 times infinity is no number.
    """
    method, given = method_of(), []
    state = jax.device_get(jax.jit(method.init)(jax.random.key(0)))
    batch = some_units(method, 6)
    absent = np.arange(6)[:, None] >= 4
    batch = batch._replace(is_padding_example=absent, index=np.full((6, 1), 7))

    def noted(key, index):
        given.append(index)
        return record_keys(key, index)

    critic = jax.tree.map(lambda leaf: leaf[0], state.critics)
    with (
        mock.patch.object(turn, 'record_keys', noted),
        mock.patch.object(parallel, 'total', lambda tree: tree),
        jax.disable_jit(),
    ):
        key = np.arange(4, dtype=np.uint32)
        method.trained_critic(critic, state.generator.params, batch, key)
    assert [np.asarray(index).tolist() for index in given] == [[7] * 4 + [0] * 2]


def test_an_unclipped_gradient_is_found_out():
    with mock.patch.object(turn, 'clip_vector', lambda vector, _: vector):
        # Another config, since what is compiled is kept by function and config.
        assert furthest(queries(method_of(gs_wgan__penalty_weight=9.0))) > 2 * BOUND


def test_all_that_is_clipped_was_settled():
    with mock.patch.object(turn, 'settled', jnp.zeros_like):
        assert furthest(queries(method_of(gs_wgan__penalty_weight=8.0))) == 0


def turned(method, batch, number, whose=(1,)):
    devices = jax.local_devices()[:number]
    state = jax.device_get(jax.jit(method.init)(jax.random.key(0, impl='rbg')))
    keys = tiny.keys().noise('gradient', 0), tiny.keys().public('step', 0)
    placed, *rng = parallel.replicate((state, *keys, np.int32(whose)), devices)

    def take_turn(state, batch, *rest):
        each = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(whose)), batch)
        return method.turn(state, each, *rest)

    made = parallel.pmapped(take_turn, devices)(placed, deal(batch, number), *rng)
    return state, *parallel.unreplicate(made)


@functools.cache
def a_turn(number):
    """(method, before, after, noisy) on so many devices, with 12 times as many images."""
    fields = {'gs_wgan__generator_batch_size': 72, 'data__image_size': 16}
    method = method_of(number, 1.3, gs_wgan__cell=2, **fields)
    return method, *turned(method, some_units(method), number)


@pytest.mark.parametrize('number', [pytest.param(1, marks=pytest.mark.slow), 8])
def test_a_turn_adds_the_plans_noise_once_and_trains_one_critic(number):
    method, before, after, noisy = a_turn(number)
    noise = noisy.ravel() / method.mechanism.noise_std
    square, n = np.sum(np.square(noise)), noise.size
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], n)
    # The gradients themselves add at most (1 / (2 sigma))^2.
    assert n > 4000 and low < square < high + 0.2
    assert not low < square * 1.5**2 < high and not low < square / 1.5**2 < high
    for old, new in zip(
        jax.tree.leaves(before.critics.params),
        jax.tree.leaves(after.critics.params),
        strict=True,
    ):
        changed = np.any(np.reshape(old != new, (len(old), -1)), axis=1)
        assert not changed[[0, 2, 3, 4]].any()
    old, new = (tiny.vector(state.generator.params) for state in (before, after))
    assert np.any(new != old) and after.generator.steps == 1


@pytest.mark.slow
def test_critics_that_take_a_turn_together_learn_and_no_other():
    method = method_of(gs_wgan__critics_per_turn=2)
    before, after, _ = turned(method, some_units(method), 1, whose=(0, 3))
    old, new = (
        np.concatenate(
            [np.reshape(leaf, (5, -1)) for leaf in jax.tree.leaves(s.critics.params)], 1
        )
        for s in (before, after)
    )
    np.testing.assert_array_equal(
        np.any(old != new, axis=1), [True, False, False, True, False]
    )


# --- cells ----------------------------------------------------------------------------


@pytest.mark.parametrize('cell', [1, 2])
def test_critics_do_not_see_what_is_finer_than_their_cells(cell):
    method = method_of(gs_wgan__cell=cell, data__image_size=16)
    rows, columns = np.indices((16, 16))
    fine = np.uint8(200 * ((rows + columns) % 2))[None, ..., None]
    coarse = np.uint8(200 * (columns >= 8))[None, ..., None] * np.ones_like(fine)
    contrast = [np.std(method.seen(image)[:, 1:-1, 1:-1]) for image in (fine, coarse)]
    assert contrast[1] > 0.5
    assert contrast[0] < 1e-5 if cell == 2 else contrast[0] > 0.5


def test_the_noise_is_on_small_images():
    *_, noisy = a_turn(8)  # of 16 x 16 pixels in cells of 2 x 2
    assert noisy.shape == (72, 8, 8, 1)


# --- whose records --------------------------------------------------------------------


def test_each_record_is_behind_one_critic_and_in_all_its_turns():
    config = settings()
    trace = gs_wgan_audit.trace(config, tiny.plan(config), tiny.keys())
    draws = trace.draws['gradient']
    turns = [set(map(int, chosen)) for chosen in draws.chosen]
    assert len(turns) == 15 and turns[:5] == turns[5:10] == turns[10:]
    assert sorted(i for own in turns[:5] for i in own) == list(range(40))
    assert len(np.unique(trace.keys['gradient'], axis=0)) == 15


def test_a_missing_record_moves_no_other_to_another_critic():
    # Independent coins: the places of n - 1 records have one law, whoever is missing.
    config = settings(gs_wgan__batch_size=20)
    rng = [tiny.keys(i.to_bytes(32)) for i in range(300)]
    run = tiny.run('unused', config)
    method = GsWgan(config, run.plan, 1)
    together = []
    for keys in rng:
        phase = GsWganPhase(dataclasses.replace(run, keys=keys), method)
        together.append(phase._owner[0] == phase._owner[1])
    assert stats.binomtest(int(np.sum(together)), 300, 0.5).pvalue > 1e-4


def test_a_record_keeps_its_critic_where_the_run_goes_on_on_other_devices():
    # Critics remember: a record behind two of them would act in the turns of both.
    config = settings(gs_wgan__batch_size=20)
    run = tiny.run('unused', config)
    method = GsWgan(config, run.plan, 1)
    moved = dataclasses.replace(run, keys=tiny.keys(fingerprint='e' * 64))
    here, there = (GsWganPhase(r, method)._owner for r in (run, moved))
    np.testing.assert_array_equal(here, there)
