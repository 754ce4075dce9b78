"""DP-MERF: one release of sensitivity 1, whose noise is the plan's; then post-processing."""

import dataclasses
import functools
import math
import tempfile
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from dp_accounting import GaussianDpEvent
from scipy import stats

from dpaf_jax.audit import canaries
from dpaf_jax.audit.methods import dp_merf as dp_merf_audit
from dpaf_jax.methods import dp_merf
from dpaf_jax.methods.dp_merf import Merf, MerfPhase
from dpaf_jax.networks.fourier import frequencies, waves
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.plan import CERTIFIED, NEIGHBORS, REPLACE_ONE
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training import input_pipeline
from dpaf_jax.training.run import Run

DEVICES = [1, 8]


def settings(**fields):
    return tiny.config(method='dp_merf', **fields)


def merf_of(number=1, sigma=1.0, **fields):
    config = settings(**fields)
    return Merf(config, tiny.plan(config, sigma), number)


# --- the plan -------------------------------------------------------------------------


@pytest.mark.parametrize('epsilon', [1.0, 10.0])
def test_the_plan_is_one_gaussian_on_all_records(epsilon):
    plan = dp_merf.plan(settings(privacy__epsilon=epsilon), 40)
    (m,) = plan.mechanisms
    assert (m.sampling_prob, m.steps, m.l2_sensitivity) == (1, 1, 1)
    assert (plan.guarantee, plan.neighbors) == (CERTIFIED, NEIGHBORS)
    assert plan.overflow_delta == 0
    spent = accounting.epsilon_pld(GaussianDpEvent(m.noise_multiplier), plan.delta)
    assert spent <= plan.epsilon <= epsilon and spent > 0.999 * epsilon


def test_what_is_published_is_certified_for_replacing_a_record():
    asked = {'privacy__epsilon': 1.0}
    ours = dp_merf.plan(settings(**asked), 40)
    theirs = dp_merf.plan(settings(**asked, privacy__guarantee='as_published'), 40)
    assert (theirs.guarantee, theirs.neighbors) == (CERTIFIED, REPLACE_ONE)
    assert theirs.epsilon == ours.epsilon and theirs.claimed_epsilon is None
    (m,) = theirs.mechanisms
    assert m.noise_std == pytest.approx(2 * ours.mechanisms[0].noise_std)
    assert 'replaced' in m.kind


def test_without_privacy_nothing_is_clipped_or_noised():
    (m,) = dp_merf.plan(settings(privacy__epsilon=math.inf), 40).mechanisms
    assert (m.noise_std, m.l2_sensitivity, m.grid) == (0, math.inf, None)


@pytest.mark.parametrize(
    ('field', 'value'),
    [
        ('features', 7),
        ('length_scales', ()),
        ('length_scales', (0.3, 0.0)),
        ('length_scales', (math.nan,)),
        ('batch_size', 5),
    ],
)
def test_what_does_not_fit_is_refused_by_name(field, value):
    with pytest.raises(UserError, match=f'config.dp_merf.{field}'):
        dp_merf.plan(settings(**{f'dp_merf__{field}': value}), 40)


# --- features -------------------------------------------------------------------------


@pytest.mark.parametrize('scales', [(0.3,), (0.1, 1.0)])
def test_rows_have_norm_one_and_the_mean_kernel_as_inner_product(scales):
    shape, number = (8, 8, 1), 20_000
    weights = frequencies(jax.random.key(0), shape, number, scales)
    images = np.random.default_rng(0).uniform(-1, 1, (2, *shape)).astype(np.float32)
    rows = np.asarray(waves(weights, images))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    square = np.sum(np.square((images[0] - images[1]) / 2))
    kernel = np.mean([math.exp(-square / (2 * 64 * s**2)) for s in scales])
    assert rows[0] @ rows[1] == pytest.approx(kernel, abs=4 / math.sqrt(number))


def test_large_images_are_reduced():
    weights = frequencies(jax.random.key(0), (70, 70, 3), 4, (0.3,))
    assert weights.shape == (23 * 23 * 3, 4)
    assert waves(weights, jnp.zeros((2, 70, 70, 3))).shape == (2, 8)


# --- sensitivity ----------------------------------------------------------------------


def states_of(merf):
    """Weights of every magnitude; one that is not finite."""
    shapes = jax.eval_shape(merf.init, jax.random.key(0))
    rng = np.random.default_rng(1)
    made = [scale * rng.normal(size=shapes.weights.shape) for scale in (0.1, 10)]
    return [weights.astype(np.float32) for weights in made]


def summed(merf, number, weights, batch):
    """The sum over devices as one float64 vector, exact."""
    devices = jax.local_devices()[:number]
    query = _query(merf, number)
    dealt = type(batch)(*(np.stack(np.split(x, number)) for x in batch))
    made = query(parallel.replicate(weights, devices), dealt)
    return tiny.vector(parallel.unreplicate(made))


@functools.cache
def _query(merf, number):
    return tiny.over_devices(merf.query, number)


def some_units(merf, number=8):
    images = canaries.extremes(merf.config.data, number)
    return canaries.batch(images, merf.config.data, (number, 1))


def moves(merf, number):
    batch, far = some_units(merf), []
    for weights in states_of(merf):
        whole = summed(merf, number, weights, batch)
        for i in range(len(batch.labels)):
            absent = np.zeros_like(batch.is_padding_example)
            absent[i] = True
            without = batch._replace(is_padding_example=absent)
            rest = summed(merf, number, weights, without)
            far.append(np.linalg.norm(whole - rest))
    return np.array(far)


@pytest.mark.parametrize('number', DEVICES)
def test_an_emptied_record_moves_the_table_by_at_most_one(number):
    far = moves(merf_of(number), number)
    assert far.max() <= 1
    assert far.min() > 0.999  # the bound is met: norm 1 by construction


@pytest.mark.parametrize('number', DEVICES)
def test_a_replaced_record_moves_the_table_by_at_most_two(number):
    merf = merf_of(number, privacy__guarantee='as_published')
    batch, weights = some_units(merf), states_of(merf)[1]
    whole, far = summed(merf, number, weights, batch), []
    for i in range(len(batch.labels)):
        for label in range(3):
            images, labels = batch.images.copy(), batch.labels.copy()
            images[i], labels[i] = 255 - images[i], label
            other = batch._replace(images=images, labels=labels)
            far.append(np.linalg.norm(whole - summed(merf, number, weights, other)))
    assert 1 < max(far) <= merf.mechanism.l2_sensitivity == 2


def test_rows_that_are_too_long_are_clipped_and_without_the_clip_found_out():
    longer = mock.patch.object(dp_merf, 'waves', lambda w, x: 3 * waves(w, x))
    with longer:
        assert moves(merf_of(), 1).max() <= 1
        free = merf_of()
        loose = dataclasses.replace(free.mechanism, l2_sensitivity=math.inf)
        plan = dataclasses.replace(free.plan, mechanisms=(loose,))
        assert moves(dataclasses.replace(free, plan=plan), 1).max() > 2


@pytest.mark.parametrize('number', DEVICES)
def test_features_that_are_not_finite_stay_out(number):
    merf = merf_of(number)
    weights = np.full_like(states_of(merf)[0], np.inf)
    assert not np.any(summed(merf, number, weights, some_units(merf)))


# --- noise ----------------------------------------------------------------------------


def noise_of(number, **fields):
    """Noise of a release of no record, in the units of the sum."""
    merf = merf_of(number, 1.3, dp_merf__features=4000, **fields)
    state = jax.device_get(merf.init(jax.random.key(0)))
    nothing = merf.mechanism.grid.nothing(state.embedding.shape)
    devices = jax.local_devices()[:number]
    release = parallel.pmapped(merf.release, devices)
    key = tiny.keys().noise('embedding', 0)
    made = release(*parallel.replicate((state, nothing, key), devices))
    prior = np.array(merf.config.data.prior)[:, None]
    return parallel.unreplicate(made).embedding * tiny.NUM_EXAMPLES * prior


@pytest.mark.parametrize('number', DEVICES)
@pytest.mark.parametrize(
    ('fields', 'expected'),
    [({}, 1.3), ({'privacy__guarantee': 'as_published'}, 2.6)],
)
def test_a_release_adds_the_plans_noise_once(number, fields, expected):
    square = np.sum(np.square(noise_of(number, **fields) / expected))
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], 12_000)
    assert low < square < high
    assert not low < square * 1.5**2 < high and not low < square / 1.5**2 < high


def test_the_divisor_follows_the_public_prior_and_not_the_labels():
    merf = merf_of(data__class_prior=(0.5, 0.3, 0.2))
    np.testing.assert_allclose(merf.expected_counts.ravel(), [20, 12, 8], rtol=1e-6)


# --- training -------------------------------------------------------------------------


@functools.cache
def trained(devices=1, unrolls=True, **fields):
    """(run, start, end) of a whole phase."""
    config = settings(**fields)
    run = tiny.run(tempfile.gettempdir(), config, devices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, 'unrolls', property(lambda self: unrolls))
        patch.setattr(dp_merf, 'WINDOW', 2)
        patch.setattr(input_pipeline, 'CHUNK', 3)  # 40 records: the last chunk is short
        phase = MerfPhase(run, Merf(config, run.plan, devices))
        start = phase.init()
        state, step = parallel.replicate(start, run.devices), 0
        while step < phase.total_steps:
            state, step, _ = phase.window(state, step)
        return run, start, parallel.unreplicate(state)


def assert_close(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_the_released_table_is_the_sum_over_all_records_and_noise():
    run, start, end = trained()
    merf = Merf(run.config, run.plan, 1)
    rows = np.asarray(waves(start.weights, to_float(run.data.images)))
    table = np.array([rows[run.data.labels == c].sum(axis=0) for c in range(3)])
    noise = end.embedding * merf.expected_counts - table
    assert 0.5 < np.std(noise) / run.plan['embedding'].noise_std < 1.6
    _, _, exact = trained(privacy__epsilon=math.inf)
    np.testing.assert_allclose(
        exact.embedding * merf.expected_counts, table, rtol=1e-4, atol=1e-4
    )


@pytest.mark.slow
def test_windows_equal_single_steps_and_a_scan_and_eight_devices():
    _, start, end = trained()
    assert end.steps == 4
    moved = jax.tree.map(np.array_equal, start.generator, end.generator)
    assert not any(jax.tree.leaves(moved))
    assert_close(end, trained(unrolls=False)[2])
    assert_close(end, trained(devices=8)[2])


def test_the_generator_comes_nearer_to_the_embedding():
    merf = merf_of(dp_merf__batch_size=300, dp_merf__learning_rate=0.02)
    state = merf.init(jax.random.key(1))
    step = parallel.pmapped(merf.generator_step, jax.local_devices()[:1])
    target = jnp.asarray(np.random.default_rng(0).normal(size=(3, 12)) / 10)
    placed = parallel.replicate(
        state._replace(embedding=target), jax.local_devices()[:1]
    )
    losses = []
    for t in range(20):
        key = tiny.keys().public('step', t)[None]
        placed, metrics = step(placed, key)
        losses.append(float(metrics['loss_match'][0]))
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


# --- the audit ------------------------------------------------------------------------


def audited(devices=(1,)):
    config = settings()
    plan = tiny.plan(config)
    (target,) = dp_merf_audit.audit_targets(config, plan, devices)
    return tiny.audit_failures(target, plan)


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_faults():
    assert not audited((1, 8))
    with mock.patch.object(dp_merf, 'waves', lambda w, x: 3 * waves(w, x)):
        assert not audited()  # the clip holds
        with mock.patch(
            'dpaf_jax.privacy.aggregation.clip_vector', lambda vector, _: vector
        ):
            assert 'sensitivity' in audited()
    dpagg = dp_merf.dpagg
    with mock.patch.object(
        dp_merf, 'dpagg', lambda s, k, std, n: dpagg(s, k, std / 2, n)
    ):
        assert 'noise level' in audited()
