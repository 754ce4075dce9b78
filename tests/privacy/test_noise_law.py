"""The law of the noise as it is drawn, computed exactly from all values of a draw."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from dpaf_jax.privacy import noise

STD = 2**13  # in units of the grid; real plans have 2^14.6 to 2^18


@jax.jit
def magnitude(rank):
    """What the upper 31 bits of a word become."""
    return -jax.scipy.special.ndtri((rank.astype(jnp.float32) + 0.5) * 2**-32)


@functools.cache
def one_draw():
    """P[a rounded draw = k], k = -reach .. reach, over all 2^31 magnitudes and signs."""
    scale = np.float32(STD / 2 * (1 + noise.EXCESS))
    weight = np.zeros(int(7 * scale))
    for exponent in range(23, 31):
        # Above 2^24 a float32 stands for so many integers.
        step = 2 ** max(0, exponent - 23)
        first = 0 if exponent == 23 else 2**exponent
        rank = np.arange(first, 2 ** (exponent + 1), step, np.uint32)
        units = np.round(np.asarray(magnitude(rank)) * scale).astype(np.int32)
        weight += step * np.bincount(units, minlength=len(weight))
    assert weight.sum() == 2**31
    half = np.trim_zeros(weight, 'b') / 2**32
    return np.concatenate([half[:0:-1], [2 * half[0]], half[1:]])


@functools.cache
def law():
    """(k, P[noise = k]) of `gaussian_units` with STD: four rounded draws, convolved."""
    one = one_draw()
    size = noise.DRAWS * (len(one) - 1) + 1
    four = np.fft.irfft(np.fft.rfft(one, 2**18) ** noise.DRAWS, 2**18)[:size]
    return np.arange(size) - size // 2, np.maximum(four, 0)


def ideal(k):
    """A normal of STD with the four roundings' variance, on the integers."""
    std = np.sqrt((STD * (1 + noise.EXCESS)) ** 2 + noise.DRAWS / 12)
    return stats.norm.pdf(k / std) / std


def test_a_draw_is_a_sign_and_a_magnitude_of_one_word():
    words = np.random.default_rng(5).integers(2**32, size=3000, dtype=np.uint32)
    expected = np.where(words & 1, 1, -1) * np.asarray(magnitude(words >> 1))
    assert np.array_equal(jax.jit(noise._normals)(words), expected)


def test_a_draw_inverts_the_normal_law_out_to_its_end():
    rank = np.unique(np.geomspace(1, 2**31 - 1, 5000).astype(np.uint32)) - 1
    exact = -special.ndtri((rank + 0.5) / 2**32)
    np.testing.assert_allclose(magnitude(rank), exact, rtol=2e-6, atol=1e-7)
    assert magnitude(np.uint32([0]))[0] == pytest.approx(6.338, abs=1e-3)


def test_one_normal_of_jax_would_be_short_of_a_tail():
    @jax.jit
    def invert(bits):  # as jax.random.normal does
        uniform = jax.lax.bitcast_convert_type(bits >> 9 | 0x3F800000, jnp.float32) - 1
        low = np.nextafter(np.float32(-1), np.float32(0))
        between = jnp.maximum(low, uniform * (1 - low) + low)
        return np.float32(np.sqrt(2)) * jax.lax.erf_inv(between)

    bits = jax.random.bits(jax.random.key(0), (100,), jnp.uint32)
    assert np.array_equal(invert(bits), jax.random.normal(jax.random.key(0), (100,)))
    ends = np.asarray(invert(np.uint32([0, 2**32 - 1])))
    np.testing.assert_allclose(ends, [-5.41998, 5.22011], rtol=1e-5)
    assert stats.norm.sf(5.22) > 8e-8  # times coordinates and steps: above delta


def test_the_units_are_four_draws_each_rounded_then_added_as_integers(monkeypatch):
    draws = np.array([[0.3], [5.22], [-1.25], [2.0]], np.float32)
    monkeypatch.setattr(noise, '_normals', lambda *_: draws)
    made = noise.gaussian_units(np.zeros((4, 1), np.uint32), 20.0)
    assert made.dtype == jnp.int32
    assert made[0] == 3 + 52 - 13 + 20  # with std 10 each, .5 to the even


def test_the_noise_reaches_where_a_normal_has_no_mass_left():
    k, mass = law()
    assert mass.sum() == pytest.approx(1, abs=1e-12)
    assert k.max() / STD > 12.6 and 2 * stats.norm.sf(12.6) < 1e-35


def test_the_noise_is_not_smaller_than_planned():
    k, mass = law()
    std = np.sqrt(np.sum(mass * np.square(k / STD)))
    assert 1 < std < 1 + 1.1 * noise.EXCESS


def test_the_noise_has_no_gap_and_is_normal():
    k, mass = law()
    inside = np.abs(k) <= 6 * STD
    ratio = mass[inside] / ideal(k[inside]) - 1
    assert np.abs(ratio).max() < 1e-4
    assert np.abs(ratio[np.abs(k[inside]) <= 3 * STD]).max() < 1e-7
    assert np.sum(ideal(k[inside]) * np.square(ratio)) < 1e-15


@pytest.mark.parametrize('sigma', [0.5, 1.0, 2.0, 4.0])
def test_delta_of_the_noise_is_below_that_of_the_gaussian_mechanism(sigma):
    """A record moves one coordinate by all of the sensitivity."""
    mass = law()[1]
    shift = int(STD / sigma)
    shifted = np.roll(mass, shift)
    shifted[:shift] = 0
    checked = 0
    for epsilon in np.arange(0, 12.5, 0.25):
        above = stats.norm.sf(epsilon * sigma - 0.5 / sigma)
        below = stats.norm.sf(epsilon * sigma + 0.5 / sigma)
        gaussian = above - np.exp(epsilon) * below
        delta = np.sum(np.maximum(mass - np.exp(epsilon) * shifted, 0))
        if gaussian > 1e-9:
            assert 0.98 * gaussian < delta < gaussian
            checked += 1
    assert checked > 3
