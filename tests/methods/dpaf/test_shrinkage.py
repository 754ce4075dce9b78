"""Contracts of shrinkage: noisy counts are drawn to the public ones, if they are noise."""

import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.phase2.targets import _count_noise, shrunk


def test_by_hand():
    values = jnp.array([0.4, 1.0, 1.8])
    spread = (0.36 + 0.0 + 0.64) / 3 - 0.1
    expected = 1 + np.array([-0.6, 0.0, 0.8]) * spread / (spread + 0.1)
    seen = shrunk(values, 1.0, jnp.float32(0.1), True)
    np.testing.assert_allclose(seen, expected, rtol=1e-5)


def test_without_noise_values_stay_and_with_nothing_else_they_go():
    values = jnp.array([0.5, 1.0, 1.2])
    np.testing.assert_allclose(
        shrunk(values, 1.0, jnp.float32(0), True), values, rtol=1e-6
    )
    np.testing.assert_allclose(
        shrunk(values, 1.0, jnp.float32(1), True), 1.0, rtol=1e-6
    )
    ones = jnp.ones(3)
    np.testing.assert_array_equal(shrunk(ones, 1.0, jnp.float32(0), True), ones)


@pytest.mark.parametrize('spread', [0.03, 0.3, 1.0])
def test_it_is_nearer_to_the_truth_than_what_was_released(spread):
    rng, noise = np.random.default_rng(0), 0.3
    before = after = 0.0
    for _ in range(300):
        truth = 1 + spread * rng.normal(size=(10, 1))
        released = truth + noise * rng.normal(size=truth.shape)
        seen = shrunk(jnp.asarray(released), 1.0, jnp.float32(noise**2), True)
        before += np.square(released - truth).sum()
        after += np.square(seen - truth).sum()
    # The best linear estimate has spread^2 / (spread^2 + noise^2) of it.
    least = spread**2 / (spread**2 + noise**2)
    assert least - 0.05 < after / before < least + 0.2


def make_gan(sigma):
    config = tiny.config(**tiny.ONE_SHOT)
    return Gan(config, tiny.plan(config, sigma), 1)


@pytest.mark.parametrize('releases', [1.0, 4.0])
@pytest.mark.parametrize('sigma', [1e-6, 0.05])
def test_targets_are_means_by_shrunk_counts(sigma, releases):
    gan = make_gan(sigma)
    state = tiny.state(gan)
    scale = gan.taps.scale(gan.taps.blocks[0])
    counts = np.float32([[0.7], [1.1], [1.3]])
    table = np.array(state.latest)
    table[:, :1] = counts * scale
    state = state._replace(
        pooled=releases * table, num_pooled=np.full(3, releases, np.float32)
    )
    # Sums have noise of sigma x bound; 40 / 3 records are expected in each class.
    noise = sigma * gan.taps.bound / (tiny.NUM_EXAMPLES / 3) / scale
    variance = noise**2 / releases
    spread = max(np.mean((counts - 1) ** 2) - variance, 0)
    used = 1 + (counts - 1) * spread / (spread + variance)
    seen, known = gan.targets(state)
    assert known.all()
    np.testing.assert_allclose(seen, table / used, rtol=1e-4)


def test_classes_that_are_not_released_yet_say_nothing():
    gan = make_gan(0.05)
    state = tiny.state(gan)
    counts = gan.taps.scale(gan.taps.blocks[0]) * np.float32([0.7, 0.0, 1.3])
    table = np.array(state.latest)
    table[:, 0] = counts
    table[1] = 0
    some = state._replace(pooled=table, num_pooled=np.float32([1, 0, 1]))
    variance = float(_count_noise(gan.schedule)[0, 0]) ** 2
    used = 1 + np.array([[-0.3], [0.3]]) * (0.09 - variance) / 0.09
    seen, known = gan.targets(some)
    assert 0 < variance < 0.09 and known.tolist() == [True, False, True]
    np.testing.assert_allclose(seen[::2], table[::2] / used, rtol=1e-4)
    assert np.isfinite(gan.targets(state)[0]).all()  # nothing released at all


def test_mere_noise_in_the_counts_leaves_sums_as_they_are():
    gan = make_gan(100.0)
    state = tiny.state(gan)
    state = state._replace(pooled=state.latest, num_pooled=np.ones(3, np.float32))
    np.testing.assert_allclose(gan.targets(state)[0], state.latest, rtol=1e-4)
