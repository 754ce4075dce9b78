"""Contracts of the labeller: its bound, its noise, its rule, and the tap that reads it."""

import dataclasses
import functools
import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import planted
import pytest
import sensitivity
import tiny

from dpaf_jax import methods
from dpaf_jax.audit import canaries, white_box
from dpaf_jax.audit.methods import dpaf as dpaf_audit
from dpaf_jax.methods.dpaf.phase1.classifier_phase import LabellerPhase
from dpaf_jax.methods.dpaf.phase1.labeller import FEATURE, Labeller, steps_and_rate
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.taps.features import features
from dpaf_jax.networks.fixed.wavelets import wavelet_features
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.aggregation import aggregate
from dpaf_jax.privacy.grid import Grid
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.noise import noisy_mean
from dpaf_jax.release.samplers.dpaf import (
    LABELLER,
    init_weights,
    labeller_features,
)
from dpaf_jax.release.samplers.registry import make_sampler
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.run import Run

ON = {**tiny.ONE_SHOT, 'dpaf__classifier__private': LABELLER, 'dpaf__taps': 'wavelet'}
CLIP = {'dpaf__classifier__l2_clip_norm': 0.02}


def case(number, free=False, features='wavelet', mirrored=False):
    fields = {'dpaf__classifier__features': features, 'dpaf__mirrored': mirrored}
    config = tiny.config(**ON, **CLIP, **fields)
    plan = tiny.plan(config)
    labeller = Labeller(config, sensitivity.unclipped(plan) if free else plan)
    query = tiny.over_devices(labeller.query, number)
    scales = enumerate(sensitivity.SCALES)
    return query, [tiny.state(labeller, i, scale).params for i, scale in scales]


@pytest.mark.parametrize(
    'number,features,mirrored',
    [
        pytest.param(1, 'wavelet', False, marks=pytest.mark.slow),
        (8, 'wavelet', False),
        (8, 'wavelet', True),
        (8, 'combined', False),
        pytest.param(8, 'leaves', False, marks=pytest.mark.slow),
        pytest.param(8, 'perceptual', False, marks=pytest.mark.slow),
    ],
)
def test_one_record_moves_the_sum_by_at_most_c(number, features, mirrored):
    query, states = case(number, features=features, mirrored=mirrored)
    batch = sensitivity.make_units(grouped=False)
    sensitivity.check(query, number, states, batch, 0.02, power=0.7)


@pytest.fixture(scope='module')
def along_axes():
    """A labeller that reads along axes, and its first state; of few pictures and axes."""
    config = tiny.config(**ON, dpaf__classifier__features='combined')
    labeller = Labeller(config, tiny.plan(config))
    few = {'PICTURES': 60, 'MOST': 10}
    with mock.patch.multiple('dpaf_jax.methods.dpaf.axes', **few):
        state = jax.jit(labeller.init)(jax.random.key(0))
    return labeller, jax.device_get(state)


def test_it_learns_along_axes_and_labels_without_them(along_axes):
    """...by the same logits, in units of how large one can be."""
    labeller, state = along_axes
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 1), np.uint8)
    params = tiny.state(labeller, 3).params
    params = {
        **state.params,
        'weights': params['weights'][: len(state.params['weights'])],
    }
    rows = np.asarray(jax.jit(labeller.features)(params, images), np.float32)
    rows = rows[:, 0, :, 0]
    logits = rows @ params['weights'] / np.linalg.norm(params['weights']) * math.sqrt(3)
    spread = np.std(logits, axis=0).min()
    kept, shown = jax.jit(labeller.learnt)(params), np.asarray(to_float(images))
    seen = jax.jit(functools.partial(labeller_features, labeller.config))(shown)
    seen, kept = np.asarray(seen), jax.device_get(kept)
    asked = jax.eval_shape(functools.partial(init_weights, labeller.config))
    assert {name: x.shape for name, x in kept.items()} == {
        name: x.shape for name, x in asked.items()
    }
    apart = seen @ kept['weights'] + kept['bias'] - logits
    assert np.abs(apart).max() < spread / 20  # rows are rounded to bfloat16
    given = jax.jit(make_sampler(labeller.config).label)({LABELLER: kept}, shown)
    assert np.array_equal(given, np.argmax(seen @ kept['weights'] + kept['bias'], 1))


def test_a_step_along_axes_leaves_them_as_they_are(along_axes):
    labeller, state = along_axes
    batch = sensitivity.make_units(grouped=False)
    devices = jax.local_devices()[:1]
    step = parallel.pmapped(labeller.step, devices)
    state = parallel.replicate(state, devices)
    after, _ = step(state, sensitivity.deal(batch, 1), np.zeros((1, 8), np.uint32))
    jax.tree.map(
        np.testing.assert_array_equal, after.params['axes'], state.params['axes']
    )
    assert np.all(np.any(after.params['weights'] != 0, axis=0))


def test_features_computed_once_give_the_sum_that_images_give():
    config = tiny.config(**ON, **CLIP)
    labeller = Labeller(config, tiny.plan(config))
    params = tiny.state(labeller, 0, 1.0).params
    batch = sensitivity.make_units(grouped=False)
    kept = np.asarray(jax.jit(labeller.features)(params, batch.images[:, 0]))[:, None]
    query = tiny.over_devices(labeller.query, 1)
    of_images = sensitivity.summed(query, 1, params, batch)
    of_features = sensitivity.summed(query, 1, params, batch._replace(images=kept))
    assert np.linalg.norm(of_images) > 0.02
    assert np.allclose(of_features, of_images, atol=1e-4)


def phase_in(folder):
    """(run, phase) without noise."""
    config = tiny.config(**ON, privacy__epsilon=math.inf)
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8)
    data = canaries.dataset(config, images, np.arange(40, dtype=np.int32) % 3)
    plan = methods.get('dpaf').plan(config, 40)
    keys = RunKeys(bytes(32), '00' * 32)
    run = Run(folder, config, plan, data, keys, jax.local_devices()[:1])
    return run, LabellerPhase(run, Labeller(config, plan))


def learnt(folder):
    """Whether a phase kept features, and the weights that it has learnt."""
    run, phase = phase_in(folder)
    weights = np.asarray(run.train(phase).params['weights'])
    return phase._feed.data['images'].dtype == FEATURE, weights


def test_a_phase_computes_features_once_where_they_fit(monkeypatch, tmp_path):
    """...and each step computes its own where they do not: to the same weights."""
    kept, weights = learnt(tmp_path / 'kept')
    monkeypatch.setattr(
        'dpaf_jax.training.input_pipeline.features_size', lambda *_: 1e30
    )
    kept_too, of_images = learnt(tmp_path / 'images')
    assert kept and not kept_too
    assert np.linalg.norm(weights) > 1e-3
    assert np.allclose(weights, of_images, rtol=1e-3, atol=1e-6)


def test_more_records_and_more_epsilon_bear_more_and_longer_steps():
    def of(number, epsilon):
        return steps_and_rate(tiny.config(privacy__epsilon=epsilon), number)

    assert of(60_000, 1.0) == (200, 15)
    assert of(12_000, 5.0) == pytest.approx(of(60_000, 1.0))  # the noise's share is one
    assert all(
        few < many for few, many in zip(of(8000, 1.0), of(8000, 3.0), strict=True)
    )
    assert of(10**6, 10.0) == of(10**6, math.inf)  # nothing was compared above
    assert of(1500, 10.0)[1] == of(1500, math.inf)[1] == 2.5  # so few teach no more
    assert of(1500, 1.0)[1] < 2.5


def test_a_rate_and_epochs_of_zero_are_those_of_the_rule():
    rule = {'dpaf__classifier__epochs': 0.0, 'dpaf__classifier__learning_rate': 0.0}
    config = tiny.config(**ON | rule)
    plan = methods.get('dpaf').plan(config, 40)
    steps, rate = steps_and_rate(config, 40)
    assert 0 <= plan[LABELLER].steps - steps < 8

    def moved(rate):
        fields = ON | {'dpaf__classifier__learning_rate': rate}
        labeller = Labeller(tiny.config(**fields), plan)

        @jax.jit
        def update(key):
            state = labeller.init(key)
            gradient = {'weights': jnp.ones_like(state.params['weights'])}
            return labeller._optimizer().update(gradient, state.opt_state)[0]

        return update(jax.random.key(0))['weights']

    np.testing.assert_allclose(moved(0.0), moved(rate))
    assert np.all(moved(0.0) < 0)


@pytest.mark.parametrize('field', ['epochs', 'learning_rate'])
def test_a_rule_that_others_do_not_have_is_refused(field):
    config = tiny.config(**{f'dpaf__classifier__{field}': 0.0})
    with pytest.raises(UserError, match=rf'classifier\.{field}: is 0, .* labeller'):
        methods.get('dpaf').plan(config, 40)


@pytest.mark.parametrize('unrolls, expected', [(True, 1), (False, 8)])
def test_an_unrolled_call_holds_the_features_of_one_step(
    unrolls, expected, monkeypatch, tmp_path
):
    monkeypatch.setattr(Run, 'unrolls', property(lambda self: unrolls))
    run, phase = phase_in(tmp_path)
    state = parallel.replicate(phase.init(), run.devices)
    _, step, _ = phase.window(state, 0)
    assert step == expected


def test_without_its_clip_it_would_move_further():
    query, states = case(1, free=True)
    batch = sensitivity.make_units(grouped=False)
    assert sensitivity.moves(query, 1, states, batch).max() > 0.2


@pytest.mark.parametrize('lost', ['rows', 'errors'])
def test_all_that_is_clipped_was_settled(lost, monkeypatch):
    def settled(array):
        is_row = array.shape[1] > tiny.config(**ON).data.num_classes
        return 0 * array if is_row == (lost == 'rows') else array

    monkeypatch.setattr('dpaf_jax.methods.dpaf.phase1.labeller.settled', settled)
    query, states = case(1)
    batch = sensitivity.make_units(grouped=False)
    assert sensitivity.moves(query, 1, states, batch).max() == 0


def test_features_that_are_too_long_are_shortened(monkeypatch):
    def too_long(config, images):
        return [3 * wavelet_features(images)]

    monkeypatch.setattr('dpaf_jax.methods.dpaf.phase1.labeller.parts_read', too_long)
    query, states = case(1)
    batch = sensitivity.make_units(grouped=False)
    sensitivity.check(query, 1, states, batch, 0.02, power=0.7)


@pytest.mark.slow
@pytest.mark.slow
def test_the_audit_finds_features_that_are_too_long(monkeypatch):
    fields = ON | {'dpaf__classifier__l2_clip_norm': 0.5}
    assert not planted.mechanism_failures(LABELLER, **fields)
    monkeypatch.setattr(
        'dpaf_jax.methods.dpaf.phase1.labeller.clip_vector',
        lambda vector, _: 3 * vector,
    )
    assert 'sensitivity' in planted.mechanism_failures(LABELLER, **fields)


def test_the_audit_finds_noise_that_is_too_small(monkeypatch):
    def wrong(sums, key, mechanism):
        sigma = 0.5 * mechanism.noise_multiplier
        return noisy_mean(
            sums, key, dataclasses.replace(mechanism, noise_multiplier=sigma)
        )

    monkeypatch.setattr('dpaf_jax.methods.dpaf.phase1.labeller.noisy_mean', wrong)
    monkeypatch.setattr(white_box, 'SAMPLES', 200_000)
    monkeypatch.setattr(dpaf_audit, 'STATES', 4)
    monkeypatch.setattr(planted, 'REPETITIONS', 1000)
    assert {'noise level', 'epsilon (Gaussian)'} <= planted.mechanism_failures(
        LABELLER, **ON
    )


def test_coins_are_fresh():
    assert not planted.coin_failures(**ON)


def test_the_plan_spends_the_whole_budget_on_both():
    config = tiny.config(**ON, privacy__budgets='75%,rest,25%')
    plan = methods.get('dpaf').plan(config, 40)
    assert [m.name for m in plan.mechanisms] == [LABELLER, 'dpagg']
    assert 0.99 * config.privacy.epsilon < plan.epsilon <= config.privacy.epsilon


def test_what_it_cannot_do_is_refused():
    config = tiny.config(**ON, dpaf__classifier__unit='group')
    with pytest.raises(UserError, match='labeller'):
        methods.get('dpaf').plan(config, 40)


def test_it_learns():
    """Without noise, enough steps tell stripes from checks."""
    config = tiny.config(
        **ON, privacy__epsilon=math.inf, dpaf__classifier__batch_size=40
    )
    config = dataclasses.replace(
        config,
        dpaf=dataclasses.replace(
            config.dpaf,
            classifier=dataclasses.replace(
                config.dpaf.classifier, optimizer='momentum', learning_rate=5.0
            ),
        ),
    )
    labeller = Labeller(config, methods.get('dpaf').plan(config, 40))
    rows = np.indices((8, 8))
    patterns = [rows[0] % 2, rows[1] // 2 % 2, rows.sum(axis=0) // 2 % 2]
    images = 255 * np.stack([patterns[i % 3] for i in range(40)])[:, None, ..., None]
    labels = np.arange(40, dtype=np.int32)[:, None] % 3
    batch = tiny.batch(images.astype(np.uint8), labels, np.zeros((40, 1), bool))
    step = parallel.pmapped(labeller.step, jax.local_devices()[:1])
    start = jax.jit(labeller.init)(jax.random.key(0))
    state = parallel.replicate(start, jax.local_devices()[:1])
    for _ in range(30):
        state, _ = step(state, sensitivity.deal(batch, 1), np.zeros((1, 8), np.uint32))
    sampler = make_sampler(config)
    learnt = jax.jit(labeller.learnt)(parallel.unreplicate(state).params)
    shown = to_float(jnp.asarray(batch.images[:, 0]))
    given = jax.jit(sampler.label)({LABELLER: learnt}, shown)
    assert np.array_equal(given, labels[:, 0])


def begun(taps):
    """(gan, how phase 2 begins) after a phase 1 that has learnt all ones."""
    config = tiny.config(**{**ON, 'dpaf__taps': taps})
    plan = tiny.plan(config)
    gan = Gan(config, plan, 1)

    def init(key):
        known = jax.tree.map(jnp.ones_like, init_weights(config))
        return gan.init(key, {LABELLER: known}).params

    return gan, init


def test_its_tap_looks_with_what_phase_1_has_learnt():
    gan, init = begun('count,wavelet,labeller')
    params = jax.device_get(jax.jit(init)(jax.random.key(0)))
    assert np.all(params[LABELLER]['weights'] == 1)
    images = np.random.default_rng(0).uniform(-1, 1, (5, 8, 8, 1)).astype(np.float32)
    seen = jax.jit(functools.partial(features, gan.networks))
    taps = seen(params, images, np.zeros(5, np.int32))
    rows = np.asarray(jax.jit(wavelet_features)(images))
    logits = rows @ params[LABELLER]['weights']
    waves = np.cos(logits @ params[LABELLER]['directions'] + params[LABELLER]['phases'])
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    np.testing.assert_allclose(taps[LABELLER], waves, atol=1e-4)
    without = jax.eval_shape(begun('count,wavelet')[1], jax.random.key(0))
    assert LABELLER not in without


@pytest.mark.slow
def test_the_audit_finds_nothing_wrong_with_its_tap(monkeypatch):
    fields = ON | {'dpaf__taps': 'count,wavelet,labeller'}
    assert not planted.mechanism_failures('dpagg', **fields)
    monkeypatch.setattr(
        'dpaf_jax.methods.dpaf.phase2.aggregator.aggregate',
        lambda *args: aggregate(*args[:4], 3 * args[4], args[5]),
    )
    monkeypatch.setattr(
        'dpaf_jax.methods.dpaf.taps.features.unit_rows', lambda rows: 3 * rows
    )
    assert 'sensitivity' in planted.mechanism_failures('dpagg', **fields)


def test_its_tap_needs_one():
    config = tiny.config(**{**tiny.ONE_SHOT, 'dpaf__taps': 'count,labeller'})
    with pytest.raises(UserError, match='no labeller is learnt'):
        methods.get('dpaf').plan(config, 40)


def outer_sum(left, right, bound, std=1.0):
    grid = Grid.of(bound, std)
    return tiny.vector(grid.outer_sum(jnp.asarray(left), jnp.asarray(right), bound))


def rows(number, columns, norm, seed):
    made = np.random.default_rng(seed).normal(size=(number, columns))
    made *= norm / np.linalg.norm(made, axis=1, keepdims=True)
    return made.astype(np.float32)


@pytest.mark.parametrize(('columns', 'std'), [(4, 1e-3), (324, 1.9), (4000, 3.0)])
def test_what_rounding_factors_loses_is_little_beside_the_noise(columns, std):
    left, right = rows(700, columns, 1.0, 0), rows(700, 3, 0.5, 1)
    made = outer_sum(left, right, 0.5, std)
    exact = (left.astype(np.float64).T @ right).ravel()
    lost = np.linalg.norm(made - exact)
    assert lost < 0.1 * np.linalg.norm(exact) + 0.01 * std * np.sqrt(exact.size)


def test_outer_products_in_any_order_are_the_same_and_each_is_within_its_bound():
    left, right = rows(700, 324, 1.0, 0), rows(700, 3, 0.5, 1)
    whole = outer_sum(left, right, 0.5)
    order = np.random.default_rng(2).permutation(700)
    assert np.array_equal(outer_sum(left[order], right[order], 0.5), whole)
    for i in (0, 300, 699):
        absent = right.copy()
        absent[i] = 0
        moved = whole - outer_sum(left, absent, 0.5)
        alone = outer_sum(left[i : i + 1], right[i : i + 1], 0.5)
        assert np.array_equal(moved, alone)
        assert 0.4 < np.linalg.norm(moved) <= 0.5


def test_largest_factors_do_not_overflow():
    left = np.zeros((5000, 324), np.float32)
    left[:, 0] = 1
    right = np.full((5000, 1), -0.5, np.float32)
    made = outer_sum(left, right, 0.5)
    assert made[0] == 5000 * outer_sum(left[:1], right[:1], 0.5)[0]
    assert np.isfinite(
        outer_sum(np.full((2, 324), np.nan, np.float32), right[:2], 0.5)
    ).all()
