"""The law of the noise as it is drawn, computed from the values that a draw takes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from scipy import special, stats

from configs import recommended
from dpaf_jax import methods
from dpaf_jax.config import from_config_dict
from dpaf_jax.privacy import accounting, noise
from dpaf_jax.privacy.accounting import MIN_NOISE_MULTIPLIER
from dpaf_jax.privacy.plan import Mechanism

pytestmark = pytest.mark.usefixtures('optimised')

# In units of the grid. Real plans have 2^17 to 2^18; a coarser one has the same tails.
COARSE, STDS = 2**13, [2**17, pytest.param(2**18, marks=pytest.mark.slow)]
REACH = 12.9  # standard deviations
NEAR = 6.0  # beyond, a billionth of the mass
COIN = 2**noise.COINS


def scale_of(std):
    """Of one draw."""
    return np.float32(std / np.sqrt(noise.DRAWS) * (1 + noise.EXCESS))


@jax.jit
def magnitude(rank):
    """What the upper 31 bits of a word become, with the next word as their fraction."""
    return -jax.scipy.special.ndtri(rank * 2**-32)


def magnitudes():
    """Values of a draw and their chances times 2^32, by binades of ranks.

    A rank with its fraction is a float32 from 2^-33 to 2^31. From 2^20 on every one
    counts, nearer to 0 (beyond 3.5 standard deviations of the draw) 2^19 of each binade.
    """
    for exponent in range(-33, 31):
        number = 2 ** (23 if exponent >= 20 else 19)
        rank = np.float32(2.0**exponent * (1 + np.arange(number) / number))
        each = np.full(number, 2.0**exponent / number)
        if exponent >= 24:  # whole ranks between two floats go to the even one of them
            each[::2] += 1
            each[1::2] -= 1
        if exponent == -33:  # its end, which stands for all below
            rank, each = rank[:1], np.array([2.0**-32])
        yield np.asarray(magnitude(rank)), each


@functools.cache
def one_draw(std, rounding='at random'):
    """P[a rounded draw = k], k = -reach .. reach."""
    scale = scale_of(std)
    weight = np.zeros(int(10 * scale))
    for values, each in magnitudes():
        if rounding == 'to even':
            units = np.round(values * scale).astype(np.int32)
            weight += np.bincount(units, each, len(weight))
            continue
        fine = np.round(values * (scale * COIN)).astype(np.int32)
        below, rest = fine >> noise.COINS, (fine & (COIN - 1)) / COIN
        weight += np.bincount(below, each * (1 - rest), len(weight))
        weight += np.bincount(below + 1, each * rest, len(weight))
    half = np.trim_zeros(weight, 'b') / (2 * weight.sum())
    return np.concatenate([half[:0:-1], [2 * half[0]], half[1:]])


@functools.cache
def law(std, rounding='at random', reach=REACH):
    """(k, P[noise = k]) of `gaussian_units`: rounded draws, convolved.

    As far as `reach` standard deviations: beyond it is 0.

    A Fourier transform is off by 1e-17 of the largest mass everywhere, which is more than
    all that a tail has. Tilted by exp(t k / std) the law has its largest mass at t standard
    deviations: each stretch of it is taken from where it is large.
    """
    one = one_draw(std, rounding)
    k = np.arange(len(one)) - len(one) // 2
    size = noise.DRAWS * (len(one) - 1) + 1
    places = np.arange(size) - size // 2
    half = np.zeros(size // 2 + 1)  # P[noise = 0, 1, ...]
    length = scipy.fft.next_fast_len(size, real=True)
    for tilt in range(int(reach) + 2):
        tilted = one * np.exp(tilt * k / std)
        total = tilted.sum()
        transform = scipy.fft.rfft(tilted / total, length)
        sums = scipy.fft.irfft(transform**noise.DRAWS, length)[:size]
        here = (places >= 0) & (np.abs(places / std - tilt) <= 0.5)
        back = noise.DRAWS * np.log(total) - tilt * places[here] / std
        half[places[here]] = np.maximum(sums[here], 0) * np.exp(back)
    return places, np.concatenate([half[:0:-1], half])


def ideal(k, std):
    """A normal with the roundings' variance, 1/6 on average, on the integers."""
    std = np.sqrt(noise.DRAWS * (np.float64(scale_of(std)) ** 2 + 1 / 6))
    return stats.norm.pdf(k / std) / std


def test_a_draw_is_a_sign_and_a_magnitude_of_two_words():
    words = np.random.default_rng(5).integers(2**32, size=(2, 3000), dtype=np.uint32)
    words[0, :1000] >>= np.arange(1000, dtype=np.uint32) % 32  # small ranks too
    words[1, :9] >>= 24  # the least places
    above = words[1] >> noise.COINS
    first = (words[1].astype(np.float32) + np.float32(0.5)) * np.float32(2**-32)
    place = (above.astype(np.float32) + np.float32(0.5)) * np.float32(COIN * 2**-32)
    place = np.where(above == 0, first, place)
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


def test_the_bits_that_round_a_draw_have_no_part_in_it():
    words = np.random.default_rng(6).integers(2**32, size=(2, 30_000), dtype=np.uint32)
    words[0] >>= np.arange(30_000, dtype=np.uint32) % 31
    words[0] |= 4  # a rank of 2 or more
    other = words.copy()
    other[1] ^= np.uint32(COIN - 1)
    assert np.array_equal(noise._normals(words), noise._normals(other))


def test_the_units_are_two_draws_each_rounded_at_random_then_added(monkeypatch):
    values = np.float32([0.25, -0.25, 5.125])
    monkeypatch.setattr(noise, '_normals', lambda words: values[:, None])
    coins = np.arange(COIN, dtype=np.uint32)
    words = np.zeros((4, 3, COIN), np.uint32)
    words[1] = words[3] = coins
    std = 10 * np.sqrt(noise.DRAWS) / (1 + noise.EXCESS)
    made = np.asarray(noise.gaussian_units(words, std))
    assert made.dtype == np.int32
    for units, exact, below in zip(made / 2, values * 10, (2, -3, 51), strict=True):
        assert units.mean() == pytest.approx(exact, abs=1e-6)
        assert set(units) == {below, below + 1}


def test_noise_of_more_units_than_a_plan_has_is_no_smaller():
    words = np.random.default_rng(7).integers(2**32, size=(4, 10**5), dtype=np.uint32)
    made = np.asarray(noise.gaussian_units(words, 2.0**22))
    assert np.std(made / 2**22) == pytest.approx(1, abs=0.01)


def shifted_chi_squared(std, move, rounding):
    """How far a move of so many units is told by, over that of the Gaussian mechanism.

    Chi squared within 5 standard deviations: twice Kullback and Leibler's divergence.
    """
    k, mass = law(std, rounding, NEAR)
    inside = slice(len(k) // 2 - 5 * std, len(k) // 2 + 5 * std)
    here, there = mass[inside], mass[inside.start + move : inside.stop + move]
    return np.sum(np.square(there - here) / here) / np.expm1((move / std) ** 2)


@pytest.mark.parametrize('std', STDS)
def test_a_move_of_few_units_is_told_no_better_than_by_the_gaussian_mechanism(std):
    """Whether it is odd, say: chances that differed from unit to unit would tell."""
    for move in (1, 2, 3, 4, 5, 8, 10, 16, 30, 100, 1000):
        assert shifted_chi_squared(std, move, 'at random') < 1


def test_rounding_to_even_would_tell_odd_moves_from_even_ones():
    """As it was until 2026-11-28."""
    odd, even = (shifted_chi_squared(2**18, m, 'to even') for m in (1, 2))
    assert odd > 5000 * even > 5000
    assert 1.5e-7 < odd / 2**36 < 1.65e-7


def rounded_to_even(mechanism, coordinates):
    """As much noise as would tell as much of a contribution that is odd in all of these."""
    std = round(mechanism.noise_std / mechanism.grid.spacing)
    added = shifted_chi_squared(std, 1, 'to even') * np.expm1(std**-2.0)
    squared = mechanism.noise_multiplier**-2 + coordinates * added
    return dataclasses.replace(mechanism, noise_multiplier=squared**-0.5)


@pytest.mark.slow
def test_what_rounding_to_even_had_cost():
    """Each odd coordinate of a record added to the squared signal over noise."""
    config = recommended.get_config('mnist,1')
    plan = methods.plan(from_config_dict(config), 60_000)
    labeller, table = plan
    worse = rounded_to_even(labeller, 3969 * 10), rounded_to_even(table, 17_122)
    event = dataclasses.replace(plan, mechanisms=worse).dp_event
    epsilon = accounting.epsilon_pld(event, plan.delta - plan.overflow_delta)
    assert plan.epsilon == 1.0 and 1.011 < epsilon < 1.013
    wide = Mechanism('score', '', 0.068, 1.0, 400, 4096.0, 5000, noise_multiplier=5.23)
    before, after = (
        accounting.epsilon_pld(m.event(), 1e-5)
        for m in (wide, rounded_to_even(wide, 661_089))
    )
    assert before < 1 and 1.25 < after < 1.3


@pytest.mark.parametrize('std', STDS)
def test_the_noise_has_no_ripple(std):
    k, mass = law(std, reach=NEAR)
    inside = np.abs(k) <= 3 * std
    ratio = mass[inside] / ideal(k[inside], std) - 1
    assert np.abs(ratio).max() < 1e-5


def test_the_noise_reaches_where_a_normal_has_no_mass_left():
    k, mass = law(COARSE)
    assert mass.sum() == pytest.approx(1, abs=1e-12)
    assert k.max() / COARSE > REACH and 2 * stats.norm.sf(REACH) < 1e-37


def test_the_tail_is_computed_and_no_round_off():
    """Where a plain transform has its own error, 1e-17, the tilted one has the normal."""
    k, mass = law(COARSE)
    far = np.abs(k) == 10 * COARSE
    assert np.all(mass[far] < 1e-25)
    np.testing.assert_allclose(mass[far], ideal(k[far], COARSE), rtol=5e-3)


@pytest.mark.parametrize('std', [COARSE, *STDS])
def test_the_noise_is_not_smaller_than_planned(std):
    k, mass = law(std, reach=REACH if std == COARSE else NEAR)
    measured = np.sqrt(np.sum(mass * np.square(k / std)))
    assert 1 < measured < 1 + 1.1 * noise.EXCESS


def test_the_noise_has_no_gap_and_is_normal():
    k, mass = law(COARSE)
    for reach, most in ((3, 2e-6), (6, 2e-5), (9, 1e-4)):
        inside = np.abs(k) <= reach * COARSE
        ratio = mass[inside] / ideal(k[inside], COARSE) - 1
        assert np.abs(ratio).max() < most
    assert np.sum(ideal(k[inside], COARSE) * np.square(ratio)) < 1e-12


def deltas(sigma):
    """[n] delta of the noise and of the Gaussian mechanism, from epsilon 0 to no mass left.

    A record moves one coordinate by all of the sensitivity.
    """
    mass = law(COARSE)[1]
    shift = round(COARSE / sigma)
    sigma = COARSE / shift
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
