"""DP-GAN: clipped pairs, noise of the plan, and a generator that sees no real image."""

import math
import operator
from unittest import mock

import dp_accounting
import jax
import numpy as np
import optax
import pytest
import tiny
from adversaries import (
    moves,
    noise_of_a_step,
    some_units,
    states_of,
    summed,
    trained,
    unclipped,
)
from scipy import stats

from dpaf_jax.audit.methods import adversarial as auditing
from dpaf_jax.audit.methods import dp_gan as dp_gan_audit
from dpaf_jax.methods.adversarial import networks
from dpaf_jax.methods.adversarial.wgan import Trio
from dpaf_jax.methods.dp_gan import gan as dp_gan
from dpaf_jax.methods.dp_gan.gan import DpGan
from dpaf_jax.methods.dp_gan.networks import cross_entropy
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError

SMALL = {'method': 'dp_gan', 'dp_gan__l2_clip_norm': 0.02}


def settings(**fields):
    return tiny.config(**{**SMALL, **fields})


def gan_of(number=1, sigma=1.0, **fields):
    config = settings(**fields)
    return DpGan(config, tiny.plan(config, sigma), number)


# --- the plan -------------------------------------------------------------------------


def test_the_plan_is_dp_sgd_on_poisson_samples():
    plan = dp_gan.plan(settings(), 40)
    (m,) = plan.mechanisms
    assert (m.sampling_prob, m.steps, m.l2_sensitivity) == (0.2, 8, 0.02)
    assert plan.guarantee == CERTIFIED
    step = dp_accounting.PoissonSampledDpEvent(
        0.2, dp_accounting.GaussianDpEvent(m.noise_multiplier)
    )
    event = dp_accounting.SelfComposedDpEvent(step, 8)
    delta = plan.delta - accounting.overflow_delta(m, 40)
    spent = accounting.epsilon_pld(event, delta)
    assert 0.99 * 10 < spent <= plan.epsilon <= 10
    assert 0 < plan.overflow_delta < 0.011 * plan.delta


def test_what_is_published_is_what_is_certified():
    ours, theirs = (
        tiny.plan(settings(privacy__guarantee=mode))
        for mode in ('certified', 'as_published')
    )
    assert ours == theirs and theirs.guarantee == CERTIFIED


def test_a_batch_above_n_is_refused():
    with pytest.raises(UserError, match='config.dp_gan.batch_size: asks for 41'):
        dp_gan.plan(settings(dp_gan__batch_size=41), 40)


def test_without_privacy_nothing_is_clipped_or_noised():
    (m,) = dp_gan.plan(settings(privacy__epsilon=math.inf), 40).mechanisms
    assert (m.noise_std, m.l2_sensitivity, m.grid) == (0, math.inf, None)


# --- sensitivity ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize('number', [1, 8])
def test_one_record_moves_the_sum_by_at_most_the_clip_bound(number):
    gan = gan_of(number)
    far = moves(gan, number)
    assert 0.9 * 0.02 < far.max() <= 0.02


def test_a_discriminator_that_does_not_clip_is_found_out():
    assert moves(unclipped(gan_of()), 1).max() > 0.04


def test_a_statistic_of_the_batch_in_front_of_the_clip_is_found_out():
    def centred(images):  # by the mean image: what normalising by the batch does
        floats = images.astype(np.float32) / 127.5 - 1
        return floats - floats.mean(axis=0)

    with mock.patch.object(dp_gan, 'to_float', centred):
        far = moves(gan_of(dp_gan__generator_batch_size=7), 1)
    assert far.max() > 0.03


def test_a_record_without_finite_gradient_adds_nothing():
    gan = gan_of()
    state = states_of(gan)[0]
    state = state._replace(
        discriminator=jax.tree.map(lambda x: np.full_like(x, 3e38), state.discriminator)
    )
    assert not np.any(summed(gan, 1, state, some_units(gan)))


def test_a_pair_has_a_real_for_one_and_a_fake_for_zero():
    gan = gan_of()
    state = states_of(gan)[1]
    images = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 1)).astype(np.float32)
    label = np.int32(2)
    discriminator, params = gan.adversaries.discriminator, state.discriminator
    loss = cross_entropy(discriminator, params, Trio(*images, label, mix=0.5))
    real, fake = discriminator.apply(params, images, np.full(2, 2))
    assert loss == pytest.approx(np.logaddexp(0, -real) + np.logaddexp(0, fake))


# --- noise ----------------------------------------------------------------------------


# Its length is traced, which test_dataflow.py cannot read.
@pytest.mark.parametrize('number', [pytest.param(1, marks=pytest.mark.slow), 8])
def test_a_step_adds_the_plans_noise_once(number):
    with mock.patch.object(networks, 'make_optimizer', lambda *_: optax.sgd(1.0)):
        noise = noise_of_a_step(gan_of(number, 1.3, dp_gan__fc_width=40), number)
    square, n = np.sum(np.square(noise)), noise.size
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], n)
    assert n > 600 and low < square < high
    assert not low < square * 1.5**2 < high and not low < square / 1.5**2 < high


# --- training -------------------------------------------------------------------------


@pytest.mark.slow
def test_unrolled_calls_equal_single_steps_and_a_scan():
    start, end, metrics = trained(DpGan, settings())
    assert set(metrics) == {'noisy_gradient_norm', 'loss_generator', 'fakes_rejected'}
    assert end.generator.steps == 2
    count = optax.tree_utils.tree_get(end.discriminator_opt_state, 'count')
    assert count == 8  # n_D for each generator step
    for name in ('discriminator', 'generator.params', 'generator.ema_params'):
        part = operator.attrgetter(name)
        same = jax.tree.map(np.array_equal, part(start), part(end))
        assert not all(jax.tree.leaves(same))
    tiny.assert_close(end, trained(DpGan, settings(), unrolls=False)[1])


@pytest.mark.slow
def test_the_generator_learns_to_please_the_discriminator():
    gan = gan_of(dp_gan__generator_learning_rate=0.02, dp_gan__generator_batch_size=64)
    state = jax.device_get(jax.jit(gan.adversaries.init)(jax.random.key(0)))
    step = parallel.pmapped(gan.generator_step, jax.local_devices()[:1])
    placed, values = parallel.replicate(state, jax.local_devices()[:1]), []
    for t in range(20):
        placed, metrics = step(placed, tiny.keys().public('generator', t)[None])
        values.append(float(metrics['loss_generator'][0]))
    assert values[-1] < values[0]


# --- the audit ------------------------------------------------------------------------


def audited(devices=(1,)):
    config = settings()
    plan = tiny.plan(config)
    with mock.patch.object(auditing, 'STATES', 2):
        (target,) = dp_gan_audit.audit_targets(config, plan, devices)
    return tiny.audit_failures(target, plan)


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_faults():
    assert not audited((1, 8))
    with mock.patch('dpaf_jax.privacy.clipping.clip_factor', lambda *_: 1.0):
        assert 'sensitivity' in audited()
    record_keys = dp_gan.record_keys

    def by_slot(key, index):  # the latent of a slot, whoever lies in it
        return record_keys(key, np.arange(len(index)))

    with mock.patch.object(dp_gan, 'record_keys', by_slot):
        assert 'sensitivity' in audited()
    add = dp_gan.noisy_total
    with mock.patch.object(dp_gan, 'noisy_total', lambda s, k, std: add(s, k, std / 2)):
        assert 'noise level' in audited()
