"""Contracts of `loss_smooth`: as long as the aggregates' noise, of single fakes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.phase2.generator_update import _match_losses
from dpaf_jax.networks import losses
from dpaf_jax.runtime import parallel

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


def parts_of(gan):
    """The losses of one batch of fakes, and the fakes."""
    state, key = tiny.state(gan, scale=0.3), jax.random.key(3)
    devices = jax.local_devices()[: gan.num_devices]

    def step(state):
        generator = state.generator.params
        parts = _match_losses(gan, state, generator, key, None)
        labels = jnp.repeat(jnp.arange(3), EACH)
        return parts, gan.fakes(generator, jax.random.split(key)[0], labels)

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
    expected = gan.schedule.noise_length * np.mean(
        losses.total_variation((images + 1) / 2)
    )
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


def test_noise_is_longer_in_a_mean_of_fewer_records_than_expected():
    gan = make_gan(sigma=1e-4, dpaf__taps='count,fourier')
    rows = np.zeros((3, gan.taps.size), np.float32)
    count = gan.taps.blocks[0]
    assert count.name == 'count'
    rows[:, 0] = gan.taps.scale(count) * np.array([1.0, 0.5, 0.25])
    state = tiny.state(gan)._replace(pooled=rows, num_pooled=np.ones(3, np.int32))
    longer = gan.noise_lengths(state) / gan.schedule.noise_lengths
    np.testing.assert_allclose(longer, [1, 2, 4], rtol=1e-2)


def test_without_noise_it_is_nothing():
    config = tiny.config(**ON, privacy__epsilon=math.inf)
    plan = tiny.plan(config, 0.0)
    gan = Gan(config, plan, 1)
    assert float(parts_of(gan)[0]['loss_smooth'][0]) == 0.0


def test_without_a_weight_it_costs_nothing():
    assert set(parts_of(make_gan(dpaf__generator__loss_smooth=0.0))[0]) == {
        'loss_match'
    }
