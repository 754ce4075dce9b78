"""The law of the noise as it is drawn, computed exactly from all 2^23 float32 normals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpaf_jax.privacy import noise

STD = 2**14  # in units of the grid; real plans have 2^14.6 to 2^18


@functools.cache
def normals():
    """What jax.random.normal makes of each of its 2^23 uniforms, in their order."""

    @jax.jit
    def invert(bits):
        uniform = jax.lax.bitcast_convert_type(bits | 0x3F800000, jnp.float32) - 1
        low = np.nextafter(np.float32(-1), np.float32(0))
        between = jnp.maximum(low, uniform * (1 - low) + low)
        return np.float32(np.sqrt(2)) * jax.lax.erf_inv(between)

    return np.asarray(invert(np.arange(2**23, dtype=np.uint32)))


@functools.cache
def law():
    """(k, P[noise = k]) of `gaussian_units` with STD: four rounded draws, convolved."""
    scale = np.float32(STD / 2 * (1 + 2**-22))
    units = np.round(normals() * scale).astype(np.int64)
    reach = np.abs(units).max()
    one = np.bincount(units + reach, minlength=2 * reach + 1) / 2**23
    size = noise.DRAWS * (len(one) - 1) + 1
    four = np.fft.irfft(np.fft.rfft(one, 2**20) ** noise.DRAWS, 2**20)[:size]
    return np.arange(size) - noise.DRAWS * reach, np.maximum(four, 0)


def ideal(k):
    """A normal of STD with the four roundings' variance, on the integers."""
    std = np.sqrt(STD**2 + noise.DRAWS / 12)
    return stats.norm.pdf(k / std) / std


def test_the_table_of_normals_is_what_jax_draws_from():
    key = jax.random.key(5)
    bits = np.asarray(jax.random.bits(key, (3000,), jnp.uint32))
    assert np.array_equal(normals()[bits >> 9], jax.random.normal(key, (3000,)))


def test_one_float32_normal_is_short_of_a_tail():
    assert (normals().min(), normals().max()) == pytest.approx((-5.41998, 5.22011))
    assert stats.norm.sf(5.22) > 8e-8  # times coordinates and steps: above delta


def test_the_units_are_four_draws_each_rounded_then_added_as_integers(monkeypatch):
    draws = np.array([[0.3], [5.22], [-1.25], [2.0]], np.float32)
    monkeypatch.setattr(jax.random, 'normal', lambda *_: draws)
    made = noise.gaussian_units(jax.random.key(0), (1,), 20.0)
    assert made.dtype == jnp.int32
    assert made[0] == 3 + 52 - 13 + 20  # with std 10 each, .5 to the even


def test_the_noise_reaches_where_a_normal_has_no_mass_left():
    k, mass = law()
    assert mass.sum() == pytest.approx(1, abs=1e-12)
    assert k.max() / STD > 10.4 and 2 * stats.norm.sf(10.4) < 1e-24


def test_the_noise_is_not_smaller_than_planned():
    k, mass = law()
    variance = np.sum(mass * np.square(k / STD))
    assert 1 <= variance < 1 + 1e-6


def test_the_noise_has_no_gap_and_is_normal_to_a_part_in_1e5():
    k, mass = law()
    inside = np.abs(k) <= 6 * STD
    ratio = mass[inside] / ideal(k[inside])
    assert np.abs(ratio[np.abs(k[inside]) <= 2 * STD] - 1).max() < 2e-6
    assert np.abs(ratio - 1).max() < 0.02
    chi_square = np.sum(ideal(k[inside]) * np.square(ratio - 1))
    assert chi_square < 2e-11


def changed_loss(shift):
    """RMS change of the privacy loss of one coordinate against the normal's."""
    k, mass = law()
    at = np.flatnonzero(np.abs(k) <= 7 * STD)
    loss = np.log(mass[at] / mass[at - shift])
    normal = stats.norm.logpdf(k[at] / STD) - stats.norm.logpdf((k[at] - shift) / STD)
    return np.sqrt(np.sum(mass[at] * np.square(loss - normal)))


def test_the_privacy_loss_is_that_of_the_normal():
    # A record's whole sensitivity in one coordinate, at noise_multiplier 1 ...
    assert changed_loss(STD) < 2e-5
    # ... or spread over 4096 of them, whose losses add up in root mean square.
    assert np.sqrt(4096) * changed_loss(STD // 64) < 2e-5


@pytest.mark.parametrize('direction', [1, -1])
@pytest.mark.parametrize(
    ('epsilon', 'tolerance'), [(0.1, 1e-5), (1.0, 1e-4), (4.0, 3e-3)]
)
def test_delta_of_the_drawn_noise_is_that_of_the_gaussian_mechanism(
    epsilon, tolerance, direction
):
    mass = law()[1][::direction]
    shifted = np.roll(mass, STD)
    shifted[:STD] = 0
    delta = np.sum(np.maximum(mass - np.exp(epsilon) * shifted, 0))
    above, below = stats.norm.sf(epsilon - 0.5), stats.norm.sf(epsilon + 0.5)
    assert delta == pytest.approx(above - np.exp(epsilon) * below, rel=tolerance)
