"""Contracts of phase 2: the same run on 1 and 8 devices, unrolled, scanned, by hand."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny_phases import (
    MODES,
    equal,
    gan_phase,
    train,
    trained,
)

from dpaf_jax.methods.dpaf.phase2 import one_shot_phase
from dpaf_jax.methods.dpaf.phase2.conv2_update import conv2_step
from dpaf_jax.methods.dpaf.phase2.discriminator import head_step
from dpaf_jax.methods.dpaf.phase2.gan import StepKeys
from dpaf_jax.methods.dpaf.phase2.generator_update import generator_step
from dpaf_jax.methods.dpaf.phase2.one_shot_phase import OneShotPhase
from dpaf_jax.networks.generator import Generator
from dpaf_jax.privacy.noise import add_gaussian
from dpaf_jax.privacy.sampling import poisson_draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training import input_pipeline as feed
from dpaf_jax.training.input_pipeline import Feed, gather

# --- one device, eight devices --------------------------------------------------------


FAST = ('one shot',)


@pytest.mark.parametrize(
    'mode', [m if m in FAST else pytest.param(m, marks=pytest.mark.slow) for m in MODES]
)
def test_one_and_eight_devices_train_the_same_gan(mode):
    start, one, _ = trained(mode, 1)
    _, eight, _ = trained(mode, 8)
    tiny.assert_close(one, eight)
    # It did learn: what is compared is not the start.
    means = start.generator.ema_params, one.generator.ema_params
    change = jax.tree.map(lambda a, b: np.abs(a - b).max(), *means)
    assert max(jax.tree.leaves(change)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize('mode', ['canonical', 'one shot, whitened'])
def test_every_batch_of_fakes_is_dealt_to_the_devices(mode):
    one, eight = (batches_of_fakes(mode, devices) for devices in (1, 8))
    assert one and eight == [-(-size // 8) for size in one]


@pytest.mark.parametrize('size', [4, 40])
def test_as_published_an_update_of_conv2_has_as_many_fakes_as_reals(size):
    """Its batches are DPAGG's, whatever `conv2.batch_size` is."""
    config = tiny.config(**MODES['as published']).dpaf
    fakes = batches_of_fakes('as published', 1, dpaf__conv2__batch_size=size)
    assert fakes[-1] == config.asymmetry * config.batch_size


def batches_of_fakes(mode, devices, **fields):
    """How many fakes each call of G makes, in the order that a window is traced in."""
    run, _, phase, start = gan_phase(devices, **MODES[mode], **fields)
    sizes = []

    def note(call, args, kwargs, context):
        if isinstance(context.module, Generator) and context.method_name == '__call__':
            sizes.append(len(args[0]))
        return call(*args, **kwargs)

    with nn.intercept_methods(note):
        phase.window(parallel.replicate(start, run.devices), 0)
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize('devices', [2, 3, 4])  # no batch here can be split by three
@pytest.mark.parametrize('mode', MODES)
def test_any_number_of_devices_trains_the_same_gan(mode, devices):
    tiny.assert_close(trained(mode, 1)[1], trained(mode, devices)[1])


@pytest.mark.slow
@pytest.mark.parametrize('mode', ['canonical', 'one shot'])
def test_scanned_and_unrolled_windows_train_the_same_gan(mode):
    tiny.assert_close(trained(mode)[1], trained(mode, unrolls=False)[1])


@pytest.mark.slow
def test_a_whitened_part_has_an_optimiser_and_a_schedule_of_its_own():
    fields = {**MODES['one shot, whitened'], 'dpaf__generator_steps': 8}
    fields['dpaf__generator__optimizer'] = 'adam'
    fields['dpaf__generator__schedule'] = 'cosine'
    run, gan, phase, start = gan_phase(**fields)
    moments, _, schedule = train(run, phase, start).generator.opt_state
    assert (moments.count, schedule.count) == (4, 4)  # of eight steps in two parts
    assert gan.schedule.updates_per_part == 4


@pytest.mark.slow
def test_a_whitened_run_that_stops_within_a_part_goes_on_with_its_metric():
    fields = {**MODES['one shot, whitened'], 'dpaf__generator_steps': 8}
    run, gan, phase, start = gan_phase(**fields)
    whole = train(run, phase, start)
    steps = gan.schedule.updates_per_part + 1  # of eight, one a window
    stopped = train(run, OneShotPhase(run, gan, None), start, windows=steps)
    assert not equal(stopped.reference, stopped.generator.ema_params)
    assert not equal(stopped.reference, start.reference)
    resumed, placed = (
        OneShotPhase(run, gan, None),
        parallel.replicate(stopped, run.devices),
    )
    while steps < phase.total_steps:
        placed, steps, _ = resumed.window(placed, steps)
    assert equal(parallel.unreplicate(placed), whole)


def test_noise_that_differs_between_devices_is_noticed(monkeypatch):
    def unlike(sums, key_data, noise_std):
        key_data = key_data + jnp.uint32(parallel.place()[0] == 3)
        return add_gaussian(parallel.total(sums), key_data, noise_std)

    monkeypatch.setattr('dpaf_jax.privacy.aggregation.noisy_total', unlike)
    run, _, phase, start = gan_phase(8, **MODES['one shot'])
    with pytest.raises(parallel.ReplicasDiffer):
        train(run, phase, start, windows=1)


# --- step by step ---------------------------------------------------------------------


def by_hand(run, gan, state):
    """Algorithm 1 with one compiled call per line; no window, no phase."""
    dpaf, keys, feed = run.config.dpaf, run.keys, Feed(run)

    def call(fn, *args):
        return jax.jit(jax.vmap(fn, axis_name=parallel.AXIS))(*args)

    def draw(name, step):
        m = run.plan[name]
        return feed.deal_one(poisson_draw(m, run.plan.num_examples, keys, step))

    state = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], state)
    turn = np.ones((1, 1), bool)
    for step in range(gan.schedule.dpagg_steps):
        now = StepKeys(
            *(keys.noise(name, step)[None] for name in ('dpagg', 'fake')),
            {'conv2': keys.noise('conv2', step // dpaf.asymmetry)[None]},
            keys.public('step', step)[None],
        )
        batch = call(gather, feed.data, draw('dpagg', step))
        sums = call(gan.aggregator.query, state.params, batch)
        state = call(gan.privatised, state, sums, turn, now.real_noise)
        before = state
        state, _ = call(functools.partial(head_step, gan), state, now)
        assert_only_the_head_has_changed(before, state)
        if (step + 1) % dpaf.n_critic == 0:
            state, _ = call(functools.partial(generator_step, gan), state, now)
        if (step + 1) % dpaf.asymmetry == 0:
            batch = call(gather, feed.data, draw('conv2', step // dpaf.asymmetry))
            update = functools.partial(conv2_step, gan, name='conv2')
            state = call(update, state, batch, now)
    return jax.tree.map(lambda leaf: leaf[0], state)


def assert_only_the_head_has_changed(before, after):
    assert not equal(before.params['head'], after.params['head'])
    rest = before.params | {'head': after.params['head']}
    mine = {'head_opt_state': after.head_opt_state, 'fake': after.fake}
    assert equal(before._replace(params=rest, **mine), after)


@pytest.mark.slow
def test_a_window_equals_its_single_steps_and_only_the_head_reads_dpagg():
    fields = MODES['canonical']
    run, gan, _, start = gan_phase(1, **fields)
    assert gan.schedule.dpagg_steps == 2
    tiny.assert_close(by_hand(run, gan, start), trained('canonical')[1])


@pytest.mark.slow
def test_the_length_of_a_window_does_not_change_a_one_shot_run(monkeypatch):
    monkeypatch.setattr(one_shot_phase, 'window_length', lambda total, unrolls: 2)
    run, _, phase, start = gan_phase(1, **MODES['one shot'])
    assert phase._length == 2
    tiny.assert_close(train(run, phase, start), trained('one shot')[1])


# --- what stays as it is --------------------------------------------------------------


@pytest.mark.parametrize(
    'mode', [m if m in FAST else pytest.param(m, marks=pytest.mark.slow) for m in MODES]
)
def test_phase_2_never_changes_conv1_nor_random_features(mode):
    start, end, _ = trained(mode)
    frozen = {'conv1', 'contrast', 'fourier', 'labeller'} & set(start.params)
    if 'one shot' in mode:
        frozen |= {'conv2', 'head'}
    if mode == 'conv1 with D':
        frozen -= {'conv1'}
    for name in frozen:
        assert equal(start.params[name], end.params[name])
    for name in set(start.params) - frozen:
        assert not equal(start.params[name], end.params[name])


@pytest.mark.parametrize(
    'mode', [m if m in FAST else pytest.param(m, marks=pytest.mark.slow) for m in MODES]
)
def test_everything_that_persists_is_finite(mode):
    leaves = jax.tree.leaves(trained(mode)[1])
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)


@pytest.mark.slow
def test_aggregates_of_an_older_conv2_are_dropped():
    _, end, _ = trained('canonical')
    assert not np.any(end.pooled)
    assert not np.any(end.num_pooled)
    assert np.any(end.latest)


def test_aggregates_are_pooled_while_conv2_stays():
    _, end, _ = trained('one shot')
    np.testing.assert_allclose(end.pooled, end.latest)
    assert np.array_equal(end.num_pooled, np.ones(3))


def test_the_generators_average_lags_behind_it():
    start, end = (state.generator for state in trained('one shot')[:2])
    assert end.steps == 2
    last, mean, first = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
        for tree in (end.params, end.ema_params, start.params)
    )
    assert 0 < np.linalg.norm(mean - last) < np.linalg.norm(first - last)


# --- DPAGG over the whole data set ----------------------------------------------------


@pytest.mark.parametrize('devices', [1, 8])
def test_one_shot_dpagg_is_the_clipped_sum_over_each_class(devices, monkeypatch):
    monkeypatch.setattr(feed, 'CHUNK', 3)  # 40 records: the last chunk is short
    run, gan, phase, start = gan_phase(devices, sigma=0.0, **MODES['one shot'])
    state = phase._release(parallel.replicate(start, run.devices), 0)
    made = parallel.unreplicate(state.latest) * np.asarray(gan.schedule.expected_counts)

    images = run.data.images.astype(np.float32) / 127.5 - 1
    rows = np.asarray(
        jax.jit(gan.aggregator.rows)(start.params, images, run.data.labels), np.float64
    )
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= np.minimum(1, gan.taps.bound / lengths)
    expected = [rows[run.data.labels == label].sum(axis=0) for label in range(3)]
    np.testing.assert_allclose(made, expected, rtol=2e-3, atol=2e-3)


def test_classes_in_turn_are_released_one_after_the_other():
    fields = MODES['one shot'] | {'dpaf__classes_per_step': 1}
    run, _, phase, start = gan_phase(1, **fields)
    assert phase.total_steps == 3 * run.config.dpaf.generator_steps
    placed = parallel.replicate(start._replace(latest=0 * start.latest), run.devices)
    for release in range(3):
        placed = phase._release(placed, release)
        latest = parallel.unreplicate(placed.latest)
        assert np.any(latest, axis=1).tolist() == [c <= release for c in range(3)]
    assert parallel.unreplicate(placed.num_pooled).tolist() == [1, 1, 1]


def test_a_window_has_room_for_as_many_records_as_delta_pays_for():
    """A draw is cut at its slots; with fewer of them it would be cut more often."""
    run, _, phase, _ = gan_phase(1, **MODES['canonical'])
    for few in (0, run.plan['dpagg'].capacity):
        draws = [np.zeros(few)]
        assert phase._slots(draws) == run.plan['dpagg'].capacity


def test_a_records_aggregate_goes_to_the_device_of_the_record(tmp_path):
    run = tiny.run(tmp_path, tiny.config(), devices=2)
    draw = poisson_draw(run.plan['dpagg'], 40, run.keys, 0)
    dealt = Feed(run).deal_one(draw, segment_ids=draw.indices[:, 0])
    assert dealt['segment_ids'].shape == dealt['indices'].shape[:2] and len(
        draw.indices
    )
    there = ~dealt['is_padding_example'][..., 0]
    own = dealt['indices'][..., 0][there]
    assert own.any()
    np.testing.assert_array_equal(dealt['segment_ids'][there], own)
