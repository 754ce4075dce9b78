"""DP-Sinkhorn: transport as it should be, one clipped vector, noise as planned."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from scipy.optimize import linear_sum_assignment

from dpaf_jax import methods
from dpaf_jax.audit import canaries
from dpaf_jax.audit.harness import wild_state
from dpaf_jax.audit.methods import dp_sinkhorn as audit
from dpaf_jax.methods import dp_sinkhorn
from dpaf_jax.methods.dp_sinkhorn import DpSinkhorn, Points
from dpaf_jax.networks.losses import transport_plan
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError

KEYS = np.arange(8, dtype=np.uint32), np.arange(4, dtype=np.uint32)


def method_of(sigma=1.0, **fields):
    config = tiny.config(method='dp_sinkhorn', **fields)
    return DpSinkhorn(config, tiny.plan(config, sigma))


# --- the plan -------------------------------------------------------------------------


def test_the_plan_is_a_sampled_gaussian_of_twice_the_clip_bound():
    config = tiny.config(method='dp_sinkhorn', privacy__epsilon=2.0)
    plan = methods.get('dp_sinkhorn').plan(config, 40)
    (m,) = plan.mechanisms
    assert (m.sampling_prob, m.steps, m.l2_sensitivity) == (8 / 40, 4, 1.0)
    assert plan.guarantee == CERTIFIED
    once = PoissonSampledDpEvent(0.2, GaussianDpEvent(m.noise_multiplier))
    event = SelfComposedDpEvent(once, 4)
    spent = accounting.epsilon_pld(event, plan.delta - plan.overflow_delta)
    assert 0.999 * 2 < spent <= plan.epsilon <= 2


@pytest.mark.parametrize(('field', 'value'), [('batch_size', 41), ('cell', 9)])
def test_what_does_not_fit_is_refused_by_name(field, value):
    config = tiny.config(method='dp_sinkhorn', **{f'dp_sinkhorn__{field}': value})
    with pytest.raises(UserError, match=f'config.dp_sinkhorn.{field}'):
        methods.get('dp_sinkhorn').plan(config, 40)


# --- the transport --------------------------------------------------------------------


def test_a_small_entropy_gives_the_assignment_of_least_cost():
    costs = np.random.default_rng(0).uniform(0, 900, (12, 12)).astype(np.float32)
    even = jnp.full(12, -np.log(12))
    moved = np.asarray(transport_plan(costs, even, even, 0.05))
    best = linear_sum_assignment(costs)
    assert np.sum(moved * costs) == pytest.approx(costs[best].mean(), rel=1e-3)
    np.testing.assert_allclose(moved.sum(axis=1), 1 / 12, rtol=1e-3)


def test_a_large_entropy_spreads_the_mass():
    costs = np.random.default_rng(0).uniform(0, 1, (4, 6)).astype(np.float32)
    left, right = jnp.full(4, -np.log(4)), jnp.full(6, -np.log(6))
    moved = transport_plan(costs, left, right, 1e3)
    np.testing.assert_allclose(moved, 1 / 24, rtol=1e-2)


def test_padding_takes_no_mass_and_labels_keep_to_themselves():
    method = method_of()
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (6, 8, 8, 1)).astype(np.float32)
    labels = jnp.array([0, 0, 1, 1, 2, 2])
    even = jnp.full(6, -np.log(6))
    log_mass = jnp.where(jnp.arange(7) < 6, -np.log(6), dp_sinkhorn.NOBODY)
    fakes = Points(images, labels, even)
    others = jnp.concatenate([images[::-1], images[:1]])
    whose = jnp.concatenate([labels[::-1], labels[:1]])
    real = Points(others, whose, log_mass)
    moved = transport_plan(method.cost(fakes, real), even, log_mass, 0.05)
    assert not np.any(moved[:, 6])
    np.testing.assert_allclose(moved[:, :6], np.eye(6)[::-1] / 6, atol=1e-4)
    assert float(method.distance(fakes, real)) == pytest.approx(0, abs=1e-2)


def test_the_cost_is_that_of_images_with_scaled_one_hot_labels():
    method = method_of(dp_sinkhorn__l1_weight=0.7, dp_sinkhorn__label_scale=3.0)
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (4, 8, 8, 1)).astype(np.float32)
    labels = np.array([0, 1, 1, 2])
    points = Points(images, jnp.array(labels), jnp.zeros(4))
    rows = np.c_[images.reshape(4, -1), 3.0 * np.eye(3)[labels]]
    gaps = rows[:, None] - rows[None]
    expected = np.sum(gaps**2, axis=2) + 0.7 * np.sum(np.abs(gaps), axis=2)
    np.testing.assert_allclose(method.cost(points, points), expected, rtol=1e-4)


# --- sensitivity ----------------------------------------------------------------------


@functools.cache
def _query(method):
    def query(generator, batch):
        state = method.init(jax.random.key(0))._replace(params=generator)
        with mock.patch.object(dp_sinkhorn, 'add_gaussian', lambda sums, *_: sums):
            return method.release(state, batch, *KEYS)[0]

    return parallel.pmapped(query, jax.local_devices()[:1])


def summed(method, generator, batch):
    device = jax.local_devices()[:1]
    dealt = type(batch)(*(x[None] for x in batch))
    found = _query(method)(parallel.replicate(generator, device), dealt)
    return tiny.vector(parallel.unreplicate(found))


def moves(method):
    """How far the query goes when a record is emptied, or becomes another."""
    images = canaries.extremes(method.config.data, 8)
    batch = canaries.batch(images, method.config.data, (8, 1))
    shapes = jax.eval_shape(method.init, jax.random.key(0))
    far = []
    for seed in (0, 1):
        generator = wild_state(shapes, ['params'], seed).params
        whole = summed(method, generator, batch)
        for i in range(8):
            absent = np.zeros_like(batch.is_padding_example)
            absent[i] = True
            without = batch._replace(is_padding_example=absent)
            other = batch.images.copy()
            other[i] = 255 - other[i]
            for changed in (without, batch._replace(images=other)):
                far.append(np.linalg.norm(whole - summed(method, generator, changed)))
    return np.array(far)


def test_no_record_moves_the_gradient_by_more_than_twice_the_clip_bound():
    method = method_of()
    far = moves(method)
    assert 0 < far.max() <= method.mechanism.l2_sensitivity == 1.0


def test_without_the_clip_a_record_moves_it_further():
    with mock.patch.object(dp_sinkhorn, 'clip_vector', lambda vector, _: vector):
        _query.cache_clear()
        assert moves(method_of(dp_sinkhorn__l2_clip_norm=0.5)).max() > 1.0
    _query.cache_clear()


def test_a_slot_without_a_record_takes_no_part():
    method = method_of()
    images = canaries.noise_images(method.config.data, 8, seed=1)
    batch = canaries.batch(images, method.config.data, (8, 1))
    generator = jax.jit(method.init)(jax.random.key(0)).params
    padded = batch._replace(is_padding_example=np.arange(8)[:, None] > 5)
    fewer = type(batch)(*(part[:6] for part in batch))
    expected = summed(method, generator, fewer)
    np.testing.assert_allclose(summed(method, generator, padded), expected, atol=1e-4)
    assert not np.allclose(summed(method, generator, batch), expected, atol=1e-2)


# --- noise ----------------------------------------------------------------------------


def released(method, batch, number, noise_key):
    """The noisy gradient of a step on so many devices."""
    devices = jax.local_devices()[:number]
    state = jax.jit(method.init)(jax.random.key(0))

    def release(state, batch):
        return method.release(state, batch, noise_key, KEYS[1])[0]

    parts = (x.reshape(number, -1, *x.shape[1:]) for x in batch)
    fn = parallel.pmapped(release, devices)
    made = fn(parallel.replicate(state, devices), type(batch)(*parts))
    return np.asarray(parallel.unreplicate(made)).ravel()


@pytest.mark.slow
@pytest.mark.parametrize('number', [1, 8])
def test_a_step_adds_the_plans_noise_once(number):
    method = method_of(sigma=1.3)
    batch = canaries.batch(
        canaries.noise_images(method.config.data, 8, seed=1), method.config.data, (8, 1)
    )
    generator = jax.jit(method.init)(jax.random.key(0)).params
    exact = summed(method, generator, batch)
    other = np.arange(8, 16, dtype=np.uint32)
    noise, fresh = (
        released(method, batch, number, key) - exact for key in (KEYS[0], other)
    )
    # 512 coordinates: a standard deviation is known within 3 %.
    for draw in (noise, fresh):
        assert draw.std() == pytest.approx(method.mechanism.noise_std, rel=0.15)
        assert abs(draw.mean()) < 0.2 * method.mechanism.noise_std
    assert abs(np.corrcoef(noise, fresh)[0, 1]) < 0.2


# --- training -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize('debias_share', [0.0, 0.2])  # 0: no fresh fakes
def test_fakes_come_nearer_to_the_records(debias_share):
    fields = {'learning_rate': 0.02, 'debias_share': debias_share}
    method = method_of(
        sigma=0.0, **{f'dp_sinkhorn__{name}': value for name, value in fields.items()}
    )
    data = tiny.dataset(method.config)
    batch = tiny.batch(data.images[:9], data.labels[:9])
    step = parallel.pmapped(method.step, jax.local_devices()[:1])
    dealt = type(batch)(*(x[None] for x in batch))

    def loss(state):
        images = np.asarray(data.images[:9], np.float32) / 127.5 - 1
        real = Points(images, data.labels[:9], jnp.full(9, -np.log(9)))
        labels = jnp.arange(30) % 3
        made = latent_sampler(method.config).sample(
            state.params, jax.random.key(5), labels
        )
        return float(
            method.distance(Points(made, labels, jnp.full(30, -np.log(30))), real)
        )

    start = method.init(jax.random.key(0))
    state = parallel.replicate(start, jax.local_devices()[:1])
    for t in range(25):
        keys = tiny.keys().noise('gradient', t)[None], tiny.keys().public('s', t)[None]
        state, _ = step(state, dealt, *keys)
    assert loss(parallel.unreplicate(state)) < 0.97 * loss(start)


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_faults():
    config = tiny.config(method='dp_sinkhorn')
    plan = tiny.plan(config)

    def audited(devices=(1,)):
        (target,) = audit.audit_targets(config, plan, devices)
        return tiny.audit_failures(target, plan)

    assert not audited((1, 8))
    with mock.patch.object(dp_sinkhorn, 'clip_vector', lambda vector, _: 9 * vector):
        assert 'sensitivity' in audited()
    noisy = dp_sinkhorn.add_gaussian
    with mock.patch.object(
        dp_sinkhorn, 'add_gaussian', lambda s, k, std: noisy(s, k, std / 2)
    ):
        assert 'noise level' in audited()
