"""Contracts of targets: noisy values are drawn to a guess as far as they are noise."""

import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.phase2.targets import _count_noise, kept_share

ONES = np.ones(3, np.float32)


def test_by_hand():
    gaps = jnp.array([-0.6, 0.0, 0.8])
    spread = (0.36 + 0.0 + 0.64) / 3 - 0.1
    seen = kept_share(gaps, jnp.float32(0.1), True)
    np.testing.assert_allclose(seen, spread / (spread + 0.1), rtol=1e-5)


def test_without_noise_all_is_kept_and_where_all_is_noise_nothing():
    gaps = jnp.array([-0.5, 0.0, 0.2])
    assert float(kept_share(gaps, jnp.float32(0), True)) == 1.0
    assert float(kept_share(gaps, jnp.float32(1), True)) < 1e-6
    assert np.isfinite(kept_share(jnp.zeros(3), jnp.float32(0), True))


@pytest.mark.parametrize('spread', [0.03, 0.3, 1.0])
def test_it_is_nearer_to_the_truth_than_what_was_released(spread):
    rng, noise = np.random.default_rng(0), 0.3
    before = after = 0.0
    for _ in range(300):
        truth = spread * rng.normal(size=(10, 1))
        released = truth + noise * rng.normal(size=truth.shape)
        kept = kept_share(jnp.asarray(released), jnp.float32(noise**2), True)
        before += np.square(released - truth).sum()
        after += np.square(kept * released - truth).sum()
    # The best linear estimate has spread^2 / (spread^2 + noise^2) of it.
    least = spread**2 / (spread**2 + noise**2)
    assert least - 0.05 < after / before < least + 0.2


def make_gan(sigma, **fields):
    config = tiny.config(**{**tiny.ONE_SHOT, **fields})
    return Gan(config, tiny.plan(config, sigma), 1)


def with_counts(gan, counts, table):
    """The state of one release of this table, its classes' shares of what was expected."""
    table = np.array(table)
    table[:, 0] = gan.taps.scale(gan.taps.blocks[0]) * np.float32(counts)
    return tiny.state(gan)._replace(pooled=table, num_pooled=ONES)


def own_noise(gan):
    """Standard deviation of the noise in a column of a mean row of as many as expected."""
    return float(np.mean(gan.schedule.dpagg.noise_std / gan.schedule.expected_counts))


@pytest.mark.parametrize('releases', [1.0, 4.0])
@pytest.mark.parametrize('sigma', [1e-6, 0.05])
def test_targets_are_means_by_shrunk_counts(sigma, releases):
    gan = make_gan(sigma)
    counts = np.float32([[0.7], [1.1], [1.3]])
    state = with_counts(gan, counts[:, 0], 100 * tiny.state(gan).latest)
    table = state.pooled  # whose classes differ by far more than noise
    state = state._replace(pooled=releases * table, num_pooled=releases * ONES)
    # Sums have noise of sigma x bound; 40 / 3 records are expected in each class.
    noise = float(_count_noise(gan.schedule)[0, 0])
    scale = gan.taps.scale(gan.taps.blocks[0])
    assert noise == pytest.approx(
        sigma * gan.taps.bound / (tiny.NUM_EXAMPLES / 3) / scale
    )
    variance = noise**2 / releases
    spread = max(np.mean((counts - 1) ** 2) - variance, 0)
    used = 1 + (counts - 1) * spread / (spread + variance)
    seen = gan.targets(state)
    assert seen.known.all()
    np.testing.assert_allclose(seen.means[:, 1:], (table / used)[:, 1:], rtol=1e-3)


def test_classes_that_are_not_released_yet_say_nothing():
    gan = make_gan(0.05)
    state = with_counts(gan, [0.7, 0.0, 1.3], 100 * tiny.state(gan).latest)
    table = state.pooled
    table[1] = 0
    some = state._replace(pooled=table, num_pooled=np.float32([1, 0, 1]))
    variance = float(_count_noise(gan.schedule)[0, 0]) ** 2
    used = 1 + np.array([[-0.3], [0.3]]) * (0.09 - variance) / 0.09
    seen = gan.targets(some)
    assert 0 < variance < 0.09 and seen.known.tolist() == [True, False, True]
    np.testing.assert_allclose(
        seen.means[::2, 1:], (table[::2] / used)[:, 1:], rtol=1e-3
    )
    nothing = gan.targets(tiny.state(gan))
    assert np.isfinite(nothing.means).all() and not nothing.known.any()


def test_mere_noise_in_the_counts_leaves_sums_as_they_are():
    gan = make_gan(100.0)
    state = tiny.state(gan)
    state = state._replace(pooled=1e6 * state.latest, num_pooled=ONES)
    state.pooled[:, 0] = gan.taps.scale(gan.taps.blocks[0])
    np.testing.assert_allclose(gan.targets(state).means, state.pooled, rtol=1e-3)


@pytest.mark.parametrize('spread', [0.0, 0.5, 2.0, 100.0])
def test_class_means_are_drawn_together_as_far_as_noise_explains_them(spread):
    """The error that is told is the one that there is, and never above the noise's own."""
    gan = make_gan(1.0, dpaf__taps='count,fourier')
    rng, noise, told, seen = np.random.default_rng(1), own_noise(gan), [], []
    for _ in range(20):
        truth = rng.normal(size=gan.taps.size) + spread * noise * rng.normal(
            size=(3, gan.taps.size)
        )
        table = truth + noise * rng.normal(size=truth.shape)
        targets = gan.targets(with_counts(gan, ONES, np.float32(table)))
        told.append(np.mean(np.square(targets.errors)))
        seen.append(np.square(targets.means - truth)[:, 1:].sum() / 3)
    own = gan.schedule.noise_length**2
    assert np.mean(told) == pytest.approx(np.mean(seen), rel=0.05)
    # A third is what one mean of three rows has; the rest by the spread's share.
    expected = 1 / 3 + 2 / 3 * spread**2 / (1 + spread**2)
    assert np.mean(told) / own == pytest.approx(expected, rel=0.05)


def test_each_tap_is_drawn_together_by_itself():
    gan = make_gan(1.0, dpaf__taps='count,fourier,pixels')
    noise, rng = own_noise(gan), np.random.default_rng(2)
    table = noise * rng.normal(size=(3, gan.taps.size))
    far, near = gan.taps.columns['fourier'], gan.taps.columns['pixels']
    table[:, far] *= 100
    table = np.float32(table)
    means = gan.targets(with_counts(gan, ONES, table)).means
    np.testing.assert_allclose(means[:, far], table[:, far], rtol=0.01, atol=noise)
    assert (
        np.std(means[:, near], axis=0).mean()
        < 0.5 * np.std(table[:, near], axis=0).mean()
    )


def test_fewer_records_have_a_longer_error():
    gan = make_gan(1e-4, dpaf__taps='count,fourier')
    table = 100 * np.random.default_rng(3).normal(size=(3, gan.taps.size))
    targets = gan.targets(with_counts(gan, [1.0, 0.5, 0.25], np.float32(table)))
    longer = targets.errors / gan.schedule.noise_length
    np.testing.assert_allclose(longer, [1, 2, 4], rtol=1e-2)
