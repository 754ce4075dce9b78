"""Contracts of `loss_smooth`: as long as the aggregates' noise, of single fakes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf.phase2.gan import Gan, StepKeys, Use, coins
from dpaf_jax.methods.dpaf.phase2.generator_update import (
    GAPS_DECAY,
    TRUSTED,
    _beyond_noise,
    _match_losses,
    generator_step,
)
from dpaf_jax.networks import losses
from dpaf_jax.runtime import parallel
from dpaf_jax.training.optimizers import moving_average

EACH = 5  # fakes of a class
ON = {
    **tiny.ONE_SHOT,
    'dpaf__generator__loss_smooth': 0.5,
    'dpaf__generator__batch_size': 3 * EACH,
}


def make_gan(devices=1, sigma=0.1, **fields):
    config = tiny.config(**{**ON, **fields})
    plan = tiny.plan(config, sigma)
    return Gan(config, plan, devices)


def released(gan):
    """A state whose generator spreads and whose table is anything."""
    state = tiny.state(gan, scale=0.3)
    return state._replace(pooled=state.latest, num_pooled=np.ones(3, np.float32))


def parts_of(gan):
    """The losses of one batch of fakes, and the fakes."""
    state, key = released(gan), jax.random.key(3)
    devices = jax.local_devices()[: gan.num_devices]

    def step(state):
        parts, _ = _match_losses(gan, state, state.generator, key, None)
        labels = jnp.repeat(jnp.arange(3), EACH)
        return parts, gan.fakes(state.generator, jax.random.split(key)[0], labels)

    parts, fakes = parallel.pmapped(step, devices)(
        *parallel.replicate((state,), devices)
    )
    images = np.concatenate(np.asarray(fakes[0]))
    return parts, images[~np.concatenate(np.asarray(fakes[2]))]


@pytest.mark.parametrize('devices', [1, 8])
def test_it_is_the_fakes_mean_variation_times_the_noises_length(devices):
    gan = make_gan(devices)
    parts, images = parts_of(gan)
    assert len(images) == 3 * EACH
    each = losses.total_variation((images + 1) / 2).reshape(3, EACH)
    errors = gan.targets(released(gan)).errors
    expected = np.mean(errors * each.mean(axis=1))
    assert expected > 1e-3
    np.testing.assert_allclose(parts['loss_smooth'], expected, rtol=1e-4)


def test_the_noises_length_is_that_of_a_class_means_noise():
    gan = make_gan(sigma=0.1)
    noise = (
        0.1
        * gan.taps.bound
        * np.random.default_rng(0).normal(size=(500, gan.taps.size))
    )
    lengths = np.linalg.norm(noise / (tiny.NUM_EXAMPLES / 3), axis=1) / gan.taps.bound
    assert gan.schedule.noise_length == pytest.approx(lengths.mean(), rel=0.02)
    assert make_gan(sigma=0.2).schedule.noise_length == pytest.approx(
        2 * gan.schedule.noise_length
    )


@pytest.mark.parametrize('length', [0.99, 1.01])
def test_no_gap_is_closed_that_noise_may_have_made(length):
    """The true mean is about as far from a released one as noise is long."""
    gan = make_gan(sigma=1.0)
    state, gaps = released(gan), jnp.array([0.5, 2.0, 3.0])
    errors = gan.targets(state).errors
    state = state._replace(gaps=TRUSTED * np.square(length * errors))
    gradient = jax.grad(
        lambda gaps: _beyond_noise(state, gan.targets(state), gaps), argnums=0
    )(gaps)
    np.testing.assert_allclose(gradient, (length > 1) / 3 * jnp.ones(3))


def test_variety_is_no_matter_to_whether_a_gap_is_closed():
    """The mean over batches of the loss is that of the gap, whatever a batch's own is."""
    gan = make_gan(sigma=0.01)
    state = released(gan)._replace(gaps=np.full(3, 4.0, np.float32))
    targets = gan.targets(state)
    gaps = jnp.asarray(np.random.default_rng(0).normal(size=(1000, 3)))
    each = jax.vmap(lambda gaps: _beyond_noise(state, targets, gaps))(gaps)
    expected = jnp.mean(gaps) - TRUSTED * jnp.mean(jnp.square(targets.errors))
    assert float(jnp.mean(each)) == pytest.approx(float(expected), rel=1e-4)


def test_a_step_moves_the_average_of_gaps_by_its_own():
    gan = make_gan(sigma=0.1)
    noise = np.arange(8, dtype=np.uint32)
    keys = StepKeys(noise, noise, {}, np.arange(4, dtype=np.uint32))

    def step(state):
        key = coins(keys, Use.GENERATOR)
        _, own = _match_losses(gan, state, state.generator, key, None)
        return own, generator_step(gan, state, keys)[0].gaps

    state, one = released(gan), jax.local_devices()[:1]
    own, seen = parallel.pmapped(step, one)(*parallel.replicate((state,), one))
    expected = moving_average(state.gaps, own[0], 1, GAPS_DECAY)
    assert np.all(own[0] > 0)
    np.testing.assert_allclose(seen[0], expected, rtol=1e-5)


def test_without_noise_it_is_nothing():
    config = tiny.config(**ON, privacy__epsilon=math.inf)
    plan = tiny.plan(config, 0.0)
    gan = Gan(config, plan, 1)
    assert float(parts_of(gan)[0]['loss_smooth'][0]) < 1e-6


def test_without_a_weight_it_costs_nothing():
    assert set(parts_of(make_gan(dpaf__generator__loss_smooth=0.0))[0]) == {
        'loss_match'
    }
