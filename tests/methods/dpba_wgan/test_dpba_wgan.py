"""DPBA-WGAN: charged as drawn, clipped as one, penalty gradients, and the published noise."""

import dataclasses
import functools
import math
import operator
from unittest import mock

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
import tiny_runs
from adversaries import (
    deal,
    moves,
    noise_of_a_step,
    some_units,
    states_of,
    trained,
    unclipped,
)
from jax.flatten_util import ravel_pytree
from scipy import stats

from dpaf_jax.audit.methods import adversarial as auditing
from dpaf_jax.audit.methods import dpba_wgan as dpba_wgan_audit
from dpaf_jax.methods import dp_gan, dpba_wgan
from dpaf_jax.methods.adversarial import networks, wgan
from dpaf_jax.methods.dpba_wgan import critic
from dpaf_jax.methods.dpba_wgan.critic import DpbaWgan
from dpaf_jax.methods.dpba_wgan.plan import scale_of_step
from dpaf_jax.methods.dpba_wgan.train import make_method
from dpaf_jax.networks.layers import convolve, convolve_by_products
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError

SMALL = {'method': 'dpba_wgan', 'dpba_wgan__l2_clip_norm': 0.02}


def settings(**fields):
    return tiny.config(**{**SMALL, **fields})


def method_of(number=1, sigma=1.0, **fields):
    config = settings(**fields)
    return make_method(config, tiny.plan(config, sigma), number)


# --- the plan -------------------------------------------------------------------------


def test_each_scale_is_charged_for_the_steps_that_drew_it():
    config = settings(dpba_wgan__generator_steps=5)
    plan = dpba_wgan.plan(config, 40)
    drawn = scale_of_step(config.dpba_wgan)
    assert [m.steps for m in plan.mechanisms] == np.bincount(drawn).tolist()
    assert len(drawn) == 20 and len(plan.mechanisms) == 3
    assert len({m.capacity for m in plan.mechanisms}) == 1
    sigmas = np.array([m.noise_multiplier for m in plan.mechanisms])
    np.testing.assert_allclose(sigmas / sigmas[0], [1, 2**0.5, 2])
    events = [
        dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(0.2, dp_accounting.GaussianDpEvent(s)),
            int(n),
        )
        for s, n in zip(sigmas, np.bincount(drawn), strict=True)
    ]
    beta = sum(accounting.overflow_delta(m, 40) for m in plan.mechanisms)
    composed = dp_accounting.ComposedDpEvent(events)
    spent = accounting.epsilon_pld(composed, plan.delta - beta)
    assert plan.guarantee == CERTIFIED and plan.overflow_delta == beta
    assert 0.99 * 10 < spent <= plan.epsilon <= 10
    # Charged as the least of its noise it would be far above.
    least = [
        dataclasses.replace(m, noise_multiplier=sigmas[0]) for m in plan.mechanisms
    ]
    every = dp_accounting.ComposedDpEvent([m.event() for m in least])
    assert accounting.epsilon_rdp(every, plan.delta) > 1.1 * plan.epsilon_rdp


def test_scales_are_drawn_evenly_and_alike_in_every_run():
    config = settings(dpba_wgan__generator_steps=300).dpba_wgan
    drawn = scale_of_step(config)
    assert drawn[:12].tolist() == GOLDEN
    assert stats.chisquare(np.bincount(drawn)).pvalue > 1e-3
    assert abs(np.mean(drawn[1:] == drawn[:-1]) - 1 / 3) < 0.06


GOLDEN = [2, 2, 0, 0, 0, 0, 2, 0, 0, 1, 1, 2]


def test_one_scale_is_dp_sgd_as_for_dp_gan():
    theirs = settings(method='dp_gan', dp_gan__l2_clip_norm=0.02)
    (ours,) = dpba_wgan.plan(settings(dpba_wgan__noise_levels=1), 40).mechanisms
    (other,) = dp_gan.plan(theirs, 40).mechanisms
    same = ('sampling_prob', 'steps', 'l2_sensitivity', 'noise_multiplier', 'capacity')
    assert [getattr(ours, n) for n in same] == [getattr(other, n) for n in same]


def test_the_published_plan_is_equation_14_and_certifies_nothing():
    config = settings(privacy__guarantee='as_published', privacy__epsilon=2.0)
    plan = dpba_wgan.plan(config, 40)
    (m,) = plan.mechanisms
    assert (m.l2_sensitivity, m.sampling_prob, m.steps) == (2 / 8, 0.2, 8)
    # alpha = 2: epsilon' = 4 r dS^2 / (2 sigma^2) sqrt(2 T log(1 / delta))
    sigma, t = m.noise_std, 8
    claimed = 0.2 * 4 * (2 / 8) ** 2 / (2 * sigma**2) * math.sqrt(2 * t * math.log(1e5))
    assert claimed == pytest.approx(2.0) and plan.claimed_epsilon == 2.0
    assert plan.epsilon is None and plan.guarantee.startswith('none (as published')


def test_a_batch_above_n_is_refused():
    with pytest.raises(UserError, match='config.dpba_wgan.batch_size: asks for 41'):
        dpba_wgan.plan(settings(dpba_wgan__batch_size=41), 40)


def test_without_privacy_nothing_is_clipped_or_noised():
    plan = dpba_wgan.plan(settings(privacy__epsilon=math.inf), 40)
    for m in plan.mechanisms:
        assert (m.noise_std, m.l2_sensitivity, m.grid) == (0, math.inf, None)


# --- the penalty ----------------------------------------------------------------------


@pytest.fixture
def smooth():
    """A critic in float64, a trio, and parameters, away from the kinks of the ReLU."""
    with jax.enable_x64(True):
        method = method_of(networks__width=3)
        rng = np.random.default_rng(5)
        shapes = jax.eval_shape(
            method.adversaries.init, jax.random.key(0)
        ).discriminator
        params = jax.tree.map(lambda x: 0.5 * rng.normal(size=x.shape), shapes)
        images = rng.uniform(-1, 1, (2, 8, 8, 1))
        trio = wgan.Trio(*map(jnp.asarray, images), jnp.int32(1), jnp.float64(0.3))
        yield method.adversaries.discriminator, params, trio


def test_the_penalty_is_of_the_gradient_at_the_interpolate(smooth):
    critic, params, trio = smooth
    at = 0.3 * trio.real + 0.7 * trio.fake
    step = 1e-6 * np.eye(64).reshape(64, 8, 8, 1)
    labels = jnp.full(64, 1)
    apply = jax.jit(critic.apply)
    ahead, behind = (apply(params, at + sign * step, labels) for sign in (1, -1))
    slope = np.linalg.norm((ahead - behind) / 2e-6)
    penalty = functools.partial(wgan.gradient_penalty, critic)
    found = float(jax.jit(penalty)(params, trio))
    assert slope > 0.01 and found == pytest.approx((slope - 1) ** 2, rel=1e-5)


@pytest.mark.parametrize('term', ['distance', 'gradient_penalty'])
def test_gradients_by_the_parameters_are_finite_differences(smooth, term):
    critic, params, trio = smooth
    value = functools.partial(getattr(wgan, term), critic)
    gradient, _ = ravel_pytree(jax.jit(jax.grad(value))(params, trio))
    vector, unravel = ravel_pytree(params)
    along = jax.jit(lambda vector: value(unravel(vector), trio))
    rng = np.random.default_rng(2)
    for direction in rng.normal(size=(5, len(vector))):
        ahead, behind = (float(along(vector + h * direction)) for h in (1e-6, -1e-6))
        expected = float(gradient @ direction)
        assert (ahead - behind) / 2e-6 == pytest.approx(expected, rel=1e-5)
    assert np.linalg.norm(gradient) > 1e-3


@pytest.mark.parametrize(
    ('side', 'stride', 'kernel'), [(8, 2, 4), (7, 2, 3), (6, 1, 3)]
)
def test_a_convolution_by_products_is_the_convolution(side, stride, kernel):
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(2, side, side, 3)).astype(np.float32)
    weights = rng.normal(size=(kernel, kernel, 3, 5)).astype(np.float32)

    def both(convolve):
        def value(maps, weights):
            made = convolve(maps, weights, (stride, stride), 'SAME')
            return jnp.sum(jnp.sin(made)), made

        return jax.jit(jax.value_and_grad(value, (0, 1), has_aux=True))(maps, weights)

    for a, b in zip(
        jax.tree.leaves(both(convolve)),
        jax.tree.leaves(both(convolve_by_products)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_a_critic_without_slope_has_a_penalty_with_a_finite_gradient():
    method = method_of()
    state = jax.device_get(jax.jit(method.adversaries.init)(jax.random.key(0)))
    flat = jax.tree.map(np.zeros_like, state.discriminator)
    trio = wgan.Trio(*np.zeros((2, 8, 8, 1), np.float32), np.int32(0), np.float32(0.5))
    critic = method.adversaries.discriminator
    penalty = functools.partial(wgan.gradient_penalty, critic)
    value, gradient = jax.jit(jax.value_and_grad(penalty))(flat, trio)
    assert value == pytest.approx(1, abs=1e-4)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ('side', 'channels', 'layers'),
    [(8, 1, 'C1-C1-x'), (28, 1, 'C1-C1-x'), (32, 3, 'C1-C1-C1'), (64, 3, 'C2-C1-C1')],
)
def test_networks_fit_the_papers_data_sets(side, channels, layers):
    method = method_of(
        data__image_size=side, data__channels=channels, networks__layers=layers
    )
    batch = some_units(method, 2)
    state = jax.eval_shape(method.adversaries.init, jax.random.key(0))

    def made(key):
        return method.trios(state_of_zeros, batch, key)

    state_of_zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), state)
    on_a_device = jax.vmap(made, axis_name=parallel.AXIS)
    trios = jax.eval_shape(on_a_device, np.zeros((1, 4), np.uint32))
    assert trios.fake.shape == trios.real.shape == (1, 2, side, side, channels)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), trios)
    unit = critic.WeightedTrio(one, 1.0, 10.0)
    gradient = jax.eval_shape(jax.grad(method.cost), state.discriminator, unit)
    assert jax.tree.structure(gradient) == jax.tree.structure(state.discriminator)


# --- sensitivity ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ('number', 'alternate'),
    [
        pytest.param(1, True, marks=pytest.mark.slow),
        pytest.param(1, False, marks=pytest.mark.slow),
        (8, True),
    ],
)
def test_one_record_moves_the_sum_by_at_most_the_clip_bound(number, alternate):
    far = moves(method_of(number, dpba_wgan__alternate=alternate), number)
    assert 0.9 * 0.02 < far.max() <= 0.02


def test_a_critic_that_does_not_clip_is_found_out():
    assert moves(unclipped(method_of()), 1).max() > 0.04


def test_a_penalty_at_a_neighbours_interpolate_is_found_out():
    trios = DpbaWgan.trios

    def crossed(self, state, batch, key):
        made = trios(self, state, batch, key)
        return made._replace(fake=jnp.roll(made.real, 1, axis=0))

    with mock.patch.object(DpbaWgan, 'trios', crossed):
        # Another config, since what is compiled is kept by config.
        far = moves(method_of(dpba_wgan__generator_batch_size=7), 1)
    assert far.max() > 0.03


def test_a_coin_picks_the_term_and_both_keep_their_mean_weight():
    method = method_of(dpba_wgan__penalty_weight=7.0)
    distances, penalties = parallel.pmapped(method.weights, jax.local_devices()[:1])(
        jax.random.split(jax.random.key(1), (1, 4000))
    )
    assert set(np.unique(distances)) == {0, 2} and set(np.unique(penalties)) == {0, 14}
    assert np.all((distances == 0) == (penalties > 0))
    assert np.mean(distances) == pytest.approx(1, abs=0.06)
    both = method_of(dpba_wgan__alternate=False, dpba_wgan__penalty_weight=7.0)
    one, other = both.weights(np.zeros(3))
    assert np.all(one == 1) and np.all(other == 7)


# --- noise ----------------------------------------------------------------------------


# Its length is traced, which test_dataflow.py cannot read.
@pytest.mark.parametrize('number', [pytest.param(1, marks=pytest.mark.slow), 8])
def test_a_step_adds_the_noise_of_its_own_scale_once(number):
    with mock.patch.object(networks, 'make_optimizer', lambda *_: optax.sgd(1.0)):
        method = method_of(number, 1.3, dpba_wgan__fc_width=40)
        steps = [GOLDEN.index(scale) for scale in (0, 2)]
        stds = [method.mechanism_at(step).noise_std for step in steps]
        assert stds == pytest.approx([1.3 * 0.02, 2.6 * 0.02])
        for step in steps:
            noise = noise_of_a_step(method, number, step)
            square, n = np.sum(np.square(noise)), noise.size
            low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], n)
            assert n > 600 and low < square < high
            assert not low < square * 1.5**2 < high and not low < square / 1.5**2 < high


# --- training -------------------------------------------------------------------------


@pytest.mark.slow
def test_unrolled_calls_equal_single_steps_and_a_scan():
    config = settings(dpba_wgan__discriminator_steps=2)
    start, end, metrics = trained(DpbaWgan, config)
    assert set(metrics) == {'noisy_gradient_norm', 'loss_generator'}
    assert end.generator.steps == 2
    for name in ('discriminator', 'generator.params', 'generator.ema_params'):
        part = operator.attrgetter(name)
        same = jax.tree.map(np.array_equal, part(start), part(end))
        assert not all(jax.tree.leaves(same))
    tiny.assert_close(end, trained(DpbaWgan, config, unrolls=False)[1])


# --- as published ---------------------------------------------------------------------


def published(number=1, sigma=1.0, **fields):
    return method_of(number, sigma, privacy__guarantee='as_published', **fields)


def published_gradient(method, state, batch, seed=0, std=0.5):
    number = method.num_devices
    fn = parallel.pmapped(method.noisy_sum, jax.local_devices()[:number])
    noise, std = np.array([seed, 7], np.uint32), np.float32(std)
    devices, key = jax.local_devices()[:number], np.arange(4, dtype=np.uint32)
    state, *rest = parallel.replicate((state, noise, key, std), devices)
    made = fn(state, deal(batch, number), *rest)
    return tiny.vector(parallel.unreplicate(made))


@pytest.mark.slow
def test_the_published_noise_scales_distances_and_leaves_penalties_alone():
    method = published(dpba_wgan__cost_clip=1e6)
    state, batch = states_of(method)[0], some_units(method, 1)
    plain = published_gradient(method, state, batch, std=0.0)
    seen = [published_gradient(method, state, batch, seed) for seed in range(12)]
    # With one example every gradient lies on one line: a n + b, whatever sigma is.
    moved = np.array(seen) - plain
    assert np.linalg.matrix_rank(moved, tol=1e-3 * np.linalg.norm(moved, 2)) == 1
    # Where the coin disturbs the penalty the gradient has no noise at all.
    untouched = np.linalg.norm(moved, axis=1) < 1e-5 * np.linalg.norm(plain)
    assert 0 < untouched.sum() < 12


@pytest.mark.parametrize('make', [method_of, published])
def test_as_published_nothing_is_told_of_what_nothing_has_noised(make):
    method, devices = make(), jax.local_devices()[:1]
    state, batch = states_of(method)[0], some_units(method)
    noise = np.arange(8 if make is method_of else 2, dtype=np.uint32)
    keys = noise, np.arange(4, dtype=np.uint32)
    state, *rest = parallel.replicate((state, *keys, np.float32(1)), devices)
    critic_step = parallel.pmapped(method.discriminator_step, devices)
    told = jax.eval_shape(critic_step, state, deal(batch, 1), *rest)[1]
    generator_step = parallel.pmapped(method.generator_step, devices)
    told = told | jax.eval_shape(generator_step, state, rest[1])[1]
    assert set(told) == (
        set() if make is published else {'noisy_gradient_norm', 'loss_generator'}
    )


@pytest.mark.slow
def test_nothing_bounds_a_published_gradient():
    method = published()
    (m,) = method.plan.mechanisms
    batch = some_units(method)
    absent = np.zeros_like(batch.is_padding_example)
    absent[0] = True
    without = batch._replace(is_padding_example=absent)
    far = [
        np.linalg.norm(
            published_gradient(method, state, batch)
            - published_gradient(method, state, without)
        )
        for state in states_of(method)
    ]
    assert max(far) / 8 > 10 * m.l2_sensitivity


@pytest.mark.slow
def test_the_published_gradient_is_the_same_on_several_devices():
    one, eight = published(1), published(8)
    state, batch = states_of(one)[0], some_units(one)
    np.testing.assert_allclose(
        published_gradient(one, state, batch),
        published_gradient(eight, state, batch),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.slow
def test_a_penalty_above_the_bound_is_cut():
    tight, loose = published(dpba_wgan__cost_clip=1e-9), published()
    state, batch = states_of(tight)[0], some_units(tight)
    cut, free = (published_gradient(m, state, batch, std=0.0) for m in (tight, loose))
    assert not np.allclose(cut, free)
    without = dataclasses.replace(
        tight.config,
        dpba_wgan=dataclasses.replace(tight.settings, penalty_weight=1e-9),
    )
    alone = published_gradient(
        dataclasses.replace(tight, config=without), state, batch, std=0.0
    )
    np.testing.assert_allclose(cut, alone, rtol=1e-4, atol=1e-5)


# --- config and audit -----------------------------------------------------------------


@pytest.mark.parametrize('argument', ['svhn', 'celeba64:gender'])
def test_colour_configs_load_and_fit(argument):
    config = tiny.from_config_dict(tiny_runs.load_config('dpba_wgan', argument))
    assert config.data.channels == 3
    method = DpbaWgan(config, None, 1)
    state = jax.eval_shape(method.adversaries.init, jax.random.key(0))
    assert state.generator.steps.shape == ()


def audited(devices=(1,)):
    config = settings(dpba_wgan__noise_levels=2)
    plan = tiny.plan(config)
    with mock.patch.object(auditing, 'STATES', 2):
        targets = dpba_wgan_audit.audit_targets(config, plan, devices)
    assert [t.mechanism.name for t in targets] == ['critic_0', 'critic_1']
    return tiny.audit_failures(targets[1], plan)


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_faults():
    assert not audited((1, 8))
    with mock.patch('dpaf_jax.privacy.clipping.clip_factor', lambda *_: 1.0):
        assert 'sensitivity' in audited()
    add = critic.noisy_total
    with mock.patch.object(critic, 'noisy_total', lambda s, k, std: add(s, k, std / 2)):
        assert 'noise level' in audited()


def test_the_trace_has_every_scale_with_draws_and_keys_of_its_own():
    config = settings(dpba_wgan__generator_steps=30)
    trace = dpba_wgan_audit.trace(config, tiny.plan(config), tiny.keys())
    assert set(trace.draws) == {'critic_0', 'critic_1', 'critic_2'}
    every = np.concatenate([trace.keys[name] for name in trace.draws])
    assert len(every) >= 96 and len(np.unique(every, axis=0)) == len(every)
