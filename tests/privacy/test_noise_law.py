"""The law of the noise as it is drawn, computed from the values that a draw takes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from dpaf_jax.privacy import noise
from dpaf_jax.privacy.accounting import MIN_NOISE_MULTIPLIER

pytestmark = pytest.mark.usefixtures('optimised')

STD = 2**13  # in units of the grid; real plans have 2^14.6 to 2^18
SCALE = np.float32(STD / np.sqrt(noise.DRAWS) * (1 + noise.EXCESS))  # of one draw
REACH = 12.9  # standard deviations


@jax.jit
def magnitude(rank):
    """What the upper 31 bits of a word become, with the next word as their fraction."""
    return -jax.scipy.special.ndtri(rank * 2**-32)


@functools.cache
def one_draw():
    """P[a rounded draw = k], k = -reach .. reach, over all binades of ranks and signs.

    A rank with its fraction is a float32 from 2^-33 to 2^31. From 2^16 on every one
    counts, nearer to 0 (beyond 4.2 standard deviations of the draw) 2^20 of each binade:
    a thousand or more in each unit of the grid.
    """
    weight = np.zeros(int(10 * SCALE))
    for exponent in range(-33, 31):
        number = 2 ** (23 if exponent >= 16 else 20)
        rank = np.float32(2.0**exponent * (1 + np.arange(number) / number))
        each = 2.0**exponent / number
        if exponent == -33:  # its end, which stands for all below
            rank, each = rank[:1], 2.0**-32
        units = np.round(np.asarray(magnitude(rank)) * SCALE).astype(np.int32)
        weight += each * np.bincount(units, minlength=len(weight))
    assert weight.sum() == 2**31
    half = np.trim_zeros(weight, 'b') / 2**32
    return np.concatenate([half[:0:-1], [2 * half[0]], half[1:]])


@functools.cache
def law():
    """(k, P[noise = k]) of `gaussian_units` with STD: rounded draws, convolved.

    A Fourier transform is off by 1e-17 of the largest mass everywhere, which is more than
    all that a tail has. Tilted by exp(t k / STD) the law has its largest mass at t standard
    deviations: each stretch of it is taken from where it is large.
    """
    one = one_draw()
    k = np.arange(len(one)) - len(one) // 2
    size = noise.DRAWS * (len(one) - 1) + 1
    places = np.arange(size) - size // 2
    half = np.zeros(size // 2 + 1)  # P[noise = 0, 1, ...]
    for tilt in range(int(REACH) + 2):
        tilted = one * np.exp(tilt * k / STD)
        total = tilted.sum()
        transform = np.fft.rfft(tilted / total, 2**18)
        sums = np.fft.irfft(transform**noise.DRAWS, 2**18)[:size]
        here = (places >= 0) & (np.abs(places / STD - tilt) <= 0.5)
        back = noise.DRAWS * np.log(total) - tilt * places[here] / STD
        half[places[here]] = np.maximum(sums[here], 0) * np.exp(back)
    return places, np.concatenate([half[:0:-1], half])


def ideal(k):
    """A normal of STD with the roundings' variance, on the integers."""
    std = np.sqrt(noise.DRAWS * (np.float64(SCALE) ** 2 + 1 / 12))
    return stats.norm.pdf(k / std) / std


def test_a_draw_is_a_sign_and_a_magnitude_of_two_words():
    words = np.random.default_rng(5).integers(2**32, size=(2, 3000), dtype=np.uint32)
    words[0, :1000] >>= np.arange(1000, dtype=np.uint32) % 32  # small ranks too
    place = (words[1].astype(np.float32) + np.float32(0.5)) * np.float32(2**-32)
    rank = (words[0] >> 1).astype(np.float32) + place
    expected = np.where(words[0] & 1, 1, -1) * np.asarray(magnitude(rank))
    assert np.array_equal(jax.jit(noise._normals)(words), expected)


def test_a_draw_inverts_the_normal_law_out_to_its_end():
    rank = np.float32(np.geomspace(2.0**-33, 2**31, 5000))
    exact = -special.ndtri(np.float64(rank) / 2**32)
    np.testing.assert_allclose(magnitude(rank), exact, rtol=2e-6, atol=1e-7)
    assert noise._normals(np.uint32([1, 0])) == pytest.approx(9.155, abs=1e-3)


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


def test_the_units_are_two_draws_each_rounded_then_added_as_integers(monkeypatch):
    draws = iter([np.float32([0.3, 5.22]), np.float32([-1.25, 9.0])])
    monkeypatch.setattr(noise, '_normals', lambda words: next(draws))
    made = noise.gaussian_units(np.zeros((4, 2), np.uint32), 10.0 * np.sqrt(2))
    assert made.dtype == jnp.int32
    assert made.tolist() == [3 - 13, 52 + 90]  # with std 10 each


def test_the_noise_reaches_where_a_normal_has_no_mass_left():
    k, mass = law()
    assert mass.sum() == pytest.approx(1, abs=1e-12)
    assert k.max() / STD > REACH and 2 * stats.norm.sf(REACH) < 1e-37


def test_the_tail_is_computed_and_no_round_off():
    """Where a plain transform has its own error, 1e-17, the tilted one has the normal."""
    k, mass = law()
    far = np.abs(k) == 10 * STD
    assert np.all(mass[far] < 1e-25)
    np.testing.assert_allclose(mass[far], ideal(k[far]), rtol=5e-3)


def test_the_noise_is_not_smaller_than_planned():
    k, mass = law()
    std = np.sqrt(np.sum(mass * np.square(k / STD)))
    assert 1 < std < 1 + 1.1 * noise.EXCESS


def test_the_noise_has_no_gap_and_is_normal():
    k, mass = law()
    for reach, most in ((3, 2e-6), (6, 2e-5), (9, 1e-4)):
        inside = np.abs(k) <= reach * STD
        ratio = mass[inside] / ideal(k[inside]) - 1
        assert np.abs(ratio).max() < most
    assert np.sum(ideal(k[inside]) * np.square(ratio)) < 1e-12


def deltas(sigma):
    """[n] delta of the noise and of the Gaussian mechanism, from epsilon 0 to no mass left.

    A record moves one coordinate by all of the sensitivity.
    """
    mass = law()[1]
    shift = round(STD / sigma)
    sigma = STD / shift
    shifted = np.concatenate([np.zeros(shift), mass[:-shift]])
    made = []
    for epsilon in np.linspace(0, 0.5 / sigma**2 + REACH / sigma, 200):
        above = stats.norm.sf(epsilon * sigma - 0.5 / sigma)
        below = np.exp(epsilon + stats.norm.logsf(epsilon * sigma + 0.5 / sigma))
        own = np.sum(np.maximum(mass - np.exp(epsilon) * shifted, 0))
        made.append((own, above - below))
    return np.array(made).T


@pytest.mark.parametrize('sigma', [MIN_NOISE_MULTIPLIER, 0.35, 0.5, 1.0, 2.0, 4.0])
def test_delta_of_the_noise_is_below_that_of_the_gaussian_mechanism(sigma):
    own, gaussian = deltas(sigma)
    counts = gaussian > 1e-12
    assert np.sum(counts) > 20
    assert np.all(own[counts] < gaussian[counts])
    assert np.all(own[counts] > 0.98 * gaussian[counts])


def excess(sigma):
    own, gaussian = deltas(sigma)
    return np.max(own - gaussian)


def test_where_there_is_next_to_no_delta_left_the_noise_exceeds_it_by_less_than_1e_15():
    assert excess(MIN_NOISE_MULTIPLIER) < 1e-15


@pytest.mark.parametrize('shares', [2, 4, 16, 256, 10_000])
def test_a_move_that_coordinates_share_exceeds_it_by_less(shares):
    """By sqrt(shares) times less in each, whose excesses add up."""
    sigma = MIN_NOISE_MULTIPLIER
    assert shares * excess(sigma * np.sqrt(shares)) < excess(sigma)


def test_below_the_least_multiplier_the_noise_is_not_the_gaussian_mechanism():
    """Why there is a least one."""
    own, gaussian = deltas(0.15)
    assert np.any(own[gaussian > 1e-9] > gaussian[gaussian > 1e-9])
    assert excess(0.15) > 1e-8
