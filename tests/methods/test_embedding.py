"""Methods of one embedding: a release of sensitivity 1, noised; then post-processing."""

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

from dpaf_jax import methods
from dpaf_jax.audit import canaries
from dpaf_jax.audit.methods import embedding as audit
from dpaf_jax.config import TABLE_METHODS
from dpaf_jax.methods.embedding import matching
from dpaf_jax.methods.embedding.dp_hp import HermiteFeatures
from dpaf_jax.methods.embedding.fourier import FourierFeatures
from dpaf_jax.methods.embedding.pearl import FrequencyCritic
from dpaf_jax.methods.embedding.phase import MatchPhase
from dpaf_jax.networks.fixed.fourier import frequencies, waves
from dpaf_jax.networks.fixed.hermite import hermite
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.plan import CERTIFIED, NEIGHBORS, REPLACE_ONE
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training import input_pipeline, phase
from dpaf_jax.training.run import Run

DEVICES = [pytest.param(1, marks=pytest.mark.slow), 8]
METHODS = 'dp_merf', 'dp_kernel', 'dp_hp', 'pearl'
ROWS = {  # the features that a method's rows are
    'dp_merf': FourierFeatures,
    'dp_kernel': FourierFeatures,
    'dp_hp': HermiteFeatures,
    'pearl': FourierFeatures,
}


def settings(method='dp_merf', **fields):
    return tiny.config(method=method, **fields)


def match_of(number=1, sigma=1.0, **fields):
    config = settings(**fields)
    plan = tiny.plan(config, sigma)
    return methods.get(config.method).matching(config, plan, number)


# --- the plan -------------------------------------------------------------------------


@pytest.mark.parametrize('epsilon', [1.0, 10.0])
def test_the_plan_is_one_gaussian_on_all_records(epsilon):
    plan = methods.get('dp_merf').plan(settings(privacy__epsilon=epsilon), 40)
    (m,) = plan.mechanisms
    assert (m.sampling_prob, m.steps, m.l2_sensitivity) == (1, 1, 1)
    assert (plan.guarantee, plan.neighbors) == (CERTIFIED, NEIGHBORS)
    assert plan.overflow_delta == 0
    spent = accounting.epsilon_pld(GaussianDpEvent(m.noise_multiplier), plan.delta)
    assert spent <= plan.epsilon <= epsilon and spent > 0.999 * epsilon


@pytest.mark.parametrize('method', METHODS)
def test_all_of_them_have_the_same_plan(method):
    plans = [tiny.plan(settings(name)) for name in ('dp_merf', method)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize('method', ['dp_merf', 'dp_hp', 'pearl'])
def test_what_is_published_is_certified_for_replacing_a_record(method):
    ours = tiny.plan(settings(method))
    theirs = tiny.plan(settings(method, privacy__guarantee='as_published'))
    assert (theirs.guarantee, theirs.neighbors) == (CERTIFIED, REPLACE_ONE)
    assert theirs.claimed_epsilon is None
    (m,) = theirs.mechanisms
    assert m.noise_std == pytest.approx(2 * ours.mechanisms[0].noise_std)
    assert 'replaced' in m.kind


def test_without_privacy_nothing_is_clipped_or_noised():
    plan = methods.get('dp_merf').plan(settings(privacy__epsilon=math.inf), 40)
    (m,) = plan.mechanisms
    assert (m.noise_std, m.l2_sensitivity, m.grid) == (0, math.inf, None)


@pytest.mark.parametrize(
    ('method', 'field', 'value'),
    [
        ('dp_merf', 'features', 7),
        ('dp_kernel', 'features', 7),
        ('pearl', 'features', 7),
        ('dp_merf', 'length_scales', ()),
        ('dp_kernel', 'length_scales', (0.3, 0.0)),
        ('pearl', 'length_scales', (math.nan,)),
        *((method, 'batch_size', 5) for method in METHODS),
    ],
)
def test_what_does_not_fit_is_refused_by_name(method, field, value):
    with pytest.raises(UserError, match=f'config.{method}.{field}'):
        methods.get(method).plan(settings(method, **{f'{method}__{field}': value}), 40)


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


@pytest.mark.parametrize('scale', [0.4, 1.0, 3.0])
def test_hermite_features_of_high_order_are_the_gaussian_kernel(scale):
    x = np.linspace(-1, 1, 9, dtype=np.float32)
    rows = np.asarray(jax.jit(hermite, static_argnums=(1, 2))(x, 80, scale))
    kernel = np.exp(-np.square(x[:, None] - x) / (2 * scale**2))
    np.testing.assert_allclose(rows @ rows.T, kernel, atol=2e-5)


@pytest.mark.parametrize('order', [1, 3, 40])
def test_hermite_features_never_exceed_norm_one(order):
    x = np.linspace(-30, 30, 2001, dtype=np.float32)
    rows = jax.jit(hermite, static_argnums=(1, 2))(x, order, 0.5)
    norms = np.linalg.norm(rows, axis=1)
    assert norms.max() < 1 + 1e-5
    assert norms[abs(x) < 0.5].min() > 0.5  # what is released is not wasted


def test_hermite_rows_are_the_mean_of_pixel_kernels_and_of_products():
    fields = {'sum_order': 60, 'product_order': 40, 'products': 3, 'sum_share': 0.3}
    made = match_of(method='dp_hp', **{f'dp_hp__{k}': v for k, v in fields.items()})
    coins = np.asarray(jax.jit(made.feature_map.init)(jax.random.key(0)))
    x = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 1)).astype(np.float32)
    one, other = np.asarray(jax.jit(made.feature_map.rows)(coins, x))
    assert len(one) == made.feature_map.features
    gaps = np.square(x[0] - x[1]).ravel()
    pixels = np.mean(np.exp(-gaps / (2 * 0.5**2)))
    products = np.mean(np.exp(-gaps[coins].sum(axis=1) / 2))
    assert one @ other == pytest.approx(0.3 * pixels + 0.7 * products, abs=1e-4)


def test_the_pixels_of_a_product_are_different_ones():
    made = match_of(method='dp_hp', dp_hp__product_pixels=4, dp_hp__products=50)
    places = np.sort(jax.jit(made.feature_map.init)(jax.random.key(0)), axis=1)
    assert np.all(np.diff(places, axis=1) > 0) and places.max() < 64


# --- sensitivity ----------------------------------------------------------------------


def coins_of(made):
    """Coins of every magnitude that a run could have."""
    return [audit.wild_state(made, seed).coins for seed in (0, 1)]


def summed(made, number, coins, batch):
    """The sum over devices as one float64 vector, exact."""
    devices = jax.local_devices()[:number]
    query = _query(made, number)
    dealt = type(batch)(*(np.stack(np.split(x, number)) for x in batch))
    found = query(parallel.replicate(coins, devices), dealt)
    return tiny.vector(parallel.unreplicate(found))


@functools.cache
def _query(made, number):
    return tiny.over_devices(made.query, number)


def some_units(made, number=8):
    images = canaries.extremes(made.config.data, number)
    return canaries.batch(images, made.config.data, (number, 1))


def moves(made, number):
    batch, far = some_units(made), []
    for coins in coins_of(made):
        whole = summed(made, number, coins, batch)
        for i in range(len(batch.labels)):
            absent = np.zeros_like(batch.is_padding_example)
            absent[i] = True
            without = batch._replace(is_padding_example=absent)
            rest = summed(made, number, coins, without)
            far.append(np.linalg.norm(whole - rest))
    return np.array(far)


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('number', DEVICES)
def test_an_emptied_record_moves_the_table_by_at_most_one(method, number):
    far = moves(match_of(number, method=method), number)
    assert far.max() <= 1
    # The bound is met: norm 1 by construction, or a little less by truncation.
    assert far.min() > (0.5 if method == 'dp_hp' else 0.999)


TABLE = {
    'data__source': 'table:x.csv',
    'data__columns': 'age:0:100,bmi:10:60,dose:-1:1',
}
OF_TABLES = [m for m in METHODS if m in TABLE_METHODS]


@pytest.mark.parametrize('method', OF_TABLES)
def test_a_row_of_a_table_moves_the_sum_by_at_most_one_and_is_seen_whole(method):
    made = match_of(method=method, **TABLE)
    assert moves(made, 1).min() > 0.5 and moves(made, 1).max() <= 1
    rows = np.full((4, *made.config.data.shape), 0.5, np.float32)
    for i in range(3):
        rows[i + 1, 0, i] = 1.0
    features = np.asarray(made.feature_map.rows(coins_of(made)[0], to_float(rows)))
    assert np.all(np.linalg.norm(features[1:] - features[0], axis=1) > 0.01)


@pytest.mark.parametrize('method', METHODS)
def test_a_replaced_record_moves_the_table_by_at_most_two(method):
    made = match_of(method=method)
    batch, coins = some_units(made), coins_of(made)[1]
    whole, far = summed(made, 1, coins, batch), []
    for i in range(len(batch.labels)):
        for label in range(3):
            images, labels = batch.images.copy(), batch.labels.copy()
            images[i], labels[i] = 255 - images[i], label
            other = batch._replace(images=images, labels=labels)
            far.append(np.linalg.norm(whole - summed(made, 1, coins, other)))
    assert 1 < max(far) <= 2


def too_long(method):
    """The method's rows three times as long as they are."""
    rows = ROWS[method].rows
    return mock.patch.object(
        ROWS[method], 'rows', lambda self, coins, images: 3 * rows(self, coins, images)
    )


@pytest.mark.parametrize('method', METHODS)
def test_rows_that_are_too_long_are_clipped_and_without_the_clip_found_out(method):
    with too_long(method):
        assert moves(match_of(method=method), 1).max() <= 1
        free = match_of(method=method)
        loose = dataclasses.replace(free.mechanism, l2_sensitivity=math.inf)
        plan = dataclasses.replace(free.plan, mechanisms=(loose,))
        assert moves(dataclasses.replace(free, plan=plan), 1).max() > 1.5


@pytest.mark.parametrize('number', DEVICES)
def test_features_that_are_not_finite_stay_out(number):
    made = match_of(number)
    coins = np.full_like(coins_of(made)[0], np.inf)
    assert not np.any(summed(made, number, coins, some_units(made)))


# --- noise ----------------------------------------------------------------------------


def noise_of(number, **fields):
    """Noise of a release of no record, in the units of the sum."""
    made = match_of(number, 1.3, dp_merf__features=4000, **fields)
    state = jax.device_get(jax.jit(made.init)(jax.random.key(0)))
    nothing = made.mechanism.grid.nothing(state.embedding.shape)
    devices = jax.local_devices()[:number]
    release = parallel.pmapped(made.release, devices)
    key = tiny.keys().noise('embedding', 0)
    found = release(*parallel.replicate((state, nothing, key), devices))
    prior = np.array(made.config.data.prior)[:, None]
    return parallel.unreplicate(found).embedding * tiny.NUM_EXAMPLES * prior


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
    made = match_of(data__class_prior=(0.5, 0.3, 0.2))
    np.testing.assert_allclose(made.expected_counts.ravel(), [20, 12, 8], rtol=1e-6)


# --- training -------------------------------------------------------------------------


@functools.cache
def trained(method='dp_merf', devices=1, unrolls=True, **fields):
    """(run, start, end) of a whole phase."""
    config = settings(method, **fields)
    run = tiny.run(tempfile.gettempdir(), config, devices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, 'unrolls', property(lambda self: unrolls))
        patch.setattr(phase, 'WINDOW', 2)
        patch.setattr(input_pipeline, 'CHUNK', 3)  # 40 records: the last chunk is short
        made = methods.get(method).matching(config, run.plan, devices)
        trains = MatchPhase(run, made)
        start = trains.init()
        state, step = parallel.replicate(start, run.devices), 0
        while step < trains.total_steps:
            state, step, _ = trains.window(state, step)
        return run, start, parallel.unreplicate(state)


def test_the_released_table_is_the_sum_over_all_records_and_noise():
    run, start, end = trained()
    made = match_of()
    rows = np.asarray(jax.jit(waves)(start.coins, to_float(run.data.images)))
    table = np.array([rows[run.data.labels == c].sum(axis=0) for c in range(3)])
    noise = end.embedding * made.expected_counts - table
    assert 0.5 < np.std(noise) / run.plan['embedding'].noise_std < 1.6
    _, _, exact = trained(privacy__epsilon=math.inf)
    np.testing.assert_allclose(
        exact.embedding * made.expected_counts, table, rtol=1e-4, atol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize('method', ['dp_merf', 'pearl'])
def test_windows_equal_single_steps_and_a_scan_and_eight_devices(method):
    _, start, end = trained(method)
    assert end.generator.steps == 4
    moved = jax.tree.map(np.array_equal, start.generator.params, end.generator.params)
    assert not any(jax.tree.leaves(moved))
    tiny.assert_close(end, trained(method, unrolls=False)[2])
    tiny.assert_close(end, trained(method, devices=8)[2])


def steps_to(made, target, number):
    """Losses, and the state behind so many steps towards a target."""
    state = jax.jit(made.init)(jax.random.key(1))
    step = parallel.pmapped(made.generator_step, jax.local_devices()[:1])
    placed = parallel.replicate(
        state._replace(embedding=jnp.asarray(target)), jax.local_devices()[:1]
    )
    losses = []
    for t in range(number):
        placed, metrics = step(placed, tiny.keys().public('step', t)[None])
        losses.append(float(metrics['loss_match'][0]))
    return losses, parallel.unreplicate(placed)


def test_the_generator_comes_nearer_to_the_embedding():
    made = match_of(dp_merf__batch_size=300, dp_merf__learning_rate=0.02)
    target = np.random.default_rng(0).normal(size=(3, 12)).astype(np.float32) / 10
    losses, _ = steps_to(made, target, 20)
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


# --- the critic -----------------------------------------------------------------------


def critic_of(**fields):
    config = settings('pearl', **fields)
    return FrequencyCritic(config.pearl, 64)


def test_the_weights_are_the_ratio_of_two_normal_laws():
    coins = np.random.default_rng(0).normal(size=(64, 500)).astype(np.float32)
    coins /= np.sqrt(np.mean(np.square(coins), axis=0))
    change = np.linspace(-0.05, 0.05, 64).astype(np.float32)
    weights = np.asarray(critic_of().weights(change, coins))
    narrower = stats.norm.logpdf(coins, scale=1 / np.sqrt(1 + change)[:, None])
    log_ratio = np.sum(narrower - stats.norm.logpdf(coins), axis=0)
    expected = np.exp(log_ratio) / np.mean(np.exp(log_ratio))
    np.testing.assert_allclose(weights[:500], expected, rtol=1e-3)
    np.testing.assert_array_equal(weights[:500], weights[500:])
    np.testing.assert_allclose(critic_of().weights(0 * change, coins), 1, rtol=1e-5)


def test_the_critic_weighs_what_differs_and_takes_its_turns():
    fields = {'pearl__critic_learning_rate': 0.02, 'pearl__learning_rate': 1e-9}
    made = match_of(method='pearl', pearl__critic_every=3, **fields)
    state = jax.jit(made.init)(jax.random.key(1))
    target = np.zeros((3, 12), np.float32)
    target[:, [2, 8]] = 5.0  # cosine and sine of one frequency
    _, one = steps_to(made, target, 1)
    _, three = steps_to(made, target, 3)
    _, many = steps_to(made, target, 30)
    np.testing.assert_array_equal(one.critic[0], three.critic[0])
    assert np.any(one.critic[0] != state.critic[0])
    weights = made.critic.weights(many.critic[0], many.coins)
    assert np.argmax(weights[:6]) == 2 and weights[2] > 1.1


# --- the audit ------------------------------------------------------------------------


def audited(method, devices=(1,)):
    config = settings(method)
    plan = tiny.plan(config)
    (target,) = audit.audit_targets(config, plan, devices)
    return tiny.audit_failures(target, plan)


@pytest.mark.slow
@pytest.mark.parametrize('method', METHODS)
def test_the_audit_passes_it_and_catches_faults(method):
    assert not audited(method, (1, 8))
    with too_long(method):
        assert not audited(method)  # the clip holds
        with mock.patch(
            'dpaf_jax.privacy.aggregation.clip_vector', lambda vector, _: vector
        ):
            assert 'sensitivity' in audited(method)
    dpagg = matching.dpagg
    with mock.patch.object(
        matching, 'dpagg', lambda s, k, std, n: dpagg(s, k, std / 2, n)
    ):
        assert 'noise level' in audited(method)
