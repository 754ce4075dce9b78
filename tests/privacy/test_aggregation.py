"""Contracts of SIN and DPAGG, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from scipy import stats

from dpaf_jax.networks import instance_norm
from dpaf_jax.networks.instance_norm import ETA
from dpaf_jax.privacy import aggregation
from dpaf_jax.privacy.aggregation import aggregate, dpagg
from dpaf_jax.privacy.grid import Grid
from dpaf_jax.runtime import parallel

pytestmark = pytest.mark.usefixtures('optimised')

COINS = np.random.default_rng(11)
BATCH, SIDE, MAPS = 16, 4, 5
BOUND = np.sqrt(MAPS) * SIDE

simplified_instance_norm = jax.jit(instance_norm.simplified_instance_norm)


def reference_sin(maps):
    maps = np.asarray(maps, np.float64)
    centred = maps - maps.mean(axis=(-3, -2), keepdims=True)
    variance = np.square(centred).mean(axis=(-3, -2), keepdims=True)
    return centred / np.sqrt(variance + ETA)


def norms(maps):
    return np.linalg.norm(np.asarray(maps, np.float64).reshape(len(maps), -1), axis=1)


def make_maps(scale=1.0):
    maps = scale * COINS.normal(size=(BATCH, SIDE, SIDE, MAPS)) + scale
    return maps.astype(np.float32)


@pytest.mark.parametrize('scale', [1e-4, 1e-2, 1.0, 1e6])
def test_sin_equals_the_float64_reference(scale):
    maps = make_maps(scale)
    made = simplified_instance_norm(maps)
    np.testing.assert_allclose(made, reference_sin(maps), rtol=2e-3, atol=2e-4)


def test_sin_normalises_each_map_of_each_example_alone():
    maps = make_maps()
    changed = maps.copy()
    changed[3, :, :, 2] *= COINS.normal(size=(SIDE, SIDE))
    before, after = simplified_instance_norm(maps), simplified_instance_norm(changed)
    differs = np.any(np.asarray(before) != np.asarray(after), axis=(1, 2))
    assert np.argwhere(differs).tolist() == [[3, 2]]


def test_sin_rows_have_the_papers_norm():
    # A strong map has norm p, so that of m maps is sqrt(m) p: the published sensitivity.
    np.testing.assert_allclose(
        norms(simplified_instance_norm(make_maps())), BOUND, rtol=1e-3
    )


@pytest.mark.parametrize('value', [0.0, 1.0, -3.7, 255.0, 1e19, 3e38])
def test_sin_of_a_constant_map_stays_finite_or_is_dropped_by_the_clip(value):
    maps = np.full((2, SIDE, SIDE, MAPS), value, np.float32)
    made = np.asarray(simplified_instance_norm(maps))
    if abs(value) < 1e19:
        assert np.all(np.abs(made) <= 1e-1)
    table = sums(made.reshape(2, -1), np.zeros(2, int), np.zeros(2, bool), BOUND)
    assert norms(table)[0] <= 2 * BOUND


@jax.jit
def clipped_rows(rows):
    return aggregate(rows, np.arange(BATCH), np.zeros(BATCH, bool), BATCH, BOUND)


@pytest.mark.parametrize('scale', [1e-19, 1e-3, 1.0, 1e15, 1e19, 1e30, 1e38])
def test_rows_stay_below_the_bound_at_every_magnitude(scale):
    maps = np.clip(make_maps() * np.float64(scale), -3e38, 3e38).astype(np.float32)
    rows = simplified_instance_norm(maps).reshape(BATCH, -1)
    assert np.all(norms(clipped_rows(rows)) <= BOUND)


def test_rows_that_overflow_in_sin_are_clipped_not_trusted():
    # float32 squares overflow near 1e19: the variance is infinite or the row is NaN.
    maps = make_maps()
    maps[0] *= np.float32(1e25)
    maps[1] = np.nan
    maps[2, 0, 0, 0] = np.inf
    rows = simplified_instance_norm(maps).reshape(BATCH, -1)
    bounded = np.asarray(clipped_rows(rows))
    assert np.all(np.isfinite(bounded))
    assert np.all(norms(bounded) <= BOUND)
    np.testing.assert_allclose(norms(bounded)[3:], BOUND, rtol=1e-3)


def sums(rows, segment_ids, is_padding, bound, num_aggregates=1):
    return jax.jit(aggregate, static_argnums=3)(
        rows.astype(np.float32),
        np.asarray(segment_ids, np.int32),
        is_padding,
        num_aggregates,
        bound,
    )


def reference_sums(rows, segment_ids, is_padding, bound, num_aggregates):
    table = np.zeros((num_aggregates, rows.shape[1]))
    for row, where, absent in zip(rows, segment_ids, is_padding, strict=True):
        if not absent and 0 <= where < num_aggregates:
            table[where] += row * min(1, bound / np.linalg.norm(row))
    return table


@pytest.mark.parametrize('bound', [1.0, 3.0, np.inf])
def test_the_table_sums_clipped_rows_by_aggregate(bound):
    rows = COINS.normal(size=(BATCH, 7))
    segment_ids = np.arange(BATCH) % 4 - 1  # -1 and 3 are outside those 3
    is_padding = COINS.random(BATCH) < 0.3
    segment_ids[2] = 3
    expected = reference_sums(rows, segment_ids, is_padding, bound, 3)
    made = sums(rows, segment_ids, is_padding, bound, 3)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('label', [-1, 3, 2**31 - 1])
def test_a_label_outside_the_table_contributes_nothing(label):
    rows = np.ones((BATCH, 7))
    made = sums(rows, np.full(BATCH, label), np.zeros(BATCH, bool), 1.0, 3)
    assert not np.any(made)


def test_padding_contributes_nothing_whatever_it_holds():
    rows = COINS.normal(size=(BATCH, 7))
    is_padding = np.arange(BATCH) % 2 == 0
    rows[is_padding] = np.nan
    made = sums(rows, np.zeros(BATCH), is_padding, 9.0)
    np.testing.assert_allclose(made[0], rows[~is_padding].sum(axis=0), rtol=1e-4)


# --- noise and division ---------------------------------------------------------------


def release(sums, noise_std, counts, number):
    devices = jax.local_devices()[:number]
    fn = parallel.pmapped(
        lambda sums, key: dpagg(sums, key, noise_std, counts), devices
    )
    key = parallel.replicate(tiny.keys().noise('dpagg', 0), devices)
    return parallel.unreplicate(fn(np.stack(np.split(sums, number)), key))[0]


COUNTS = np.array([[4.0], [0.5], [20.0]], np.float32)


@pytest.mark.parametrize('number', [1, 8])
def test_dpagg_divides_the_sum_over_devices_by_the_public_count(number):
    parts = COINS.normal(size=(8, 3, 6)).astype(np.float32)
    whole = parts.sum(axis=0)[None] if number == 1 else parts
    made = release(whole, 0.0, COUNTS, number)
    np.testing.assert_allclose(made, parts.sum(axis=0) / COUNTS, rtol=1e-4, atol=1e-5)


def test_dpagg_is_the_same_on_one_device_and_on_eight():
    parts = COINS.normal(size=(8, 3, 6)).astype(np.float32)
    one = release(parts.sum(axis=0)[None], 2.0, COUNTS, 1)
    eight = release(parts, 2.0, COUNTS, 8)
    np.testing.assert_allclose(one, eight, rtol=1e-4, atol=1e-5)


def test_dpagg_adds_noise_of_its_standard_deviation_to_the_sum():
    made = release(np.zeros((1, 3, 5000), np.float32), 2.0, COUNTS, 1)
    for row, count in zip(made.astype(np.float64), COUNTS.ravel(), strict=True):
        for factor, fits in ((1, True), (2 / 3, False), (3 / 2, False)):
            total = np.sum(np.square(row * count / (2.0 * factor)))
            low, high = stats.chi2.ppf([1e-5, 1 - 1e-5], 5000)
            assert (low < total < high) == fits


def test_all_private_rows_were_settled(monkeypatch):
    monkeypatch.setattr(aggregation, 'settled', jnp.zeros_like)
    rows, index = np.ones((6, 4), np.float32), np.arange(6) % 2
    made = aggregate(rows, index, np.zeros(6, bool), 2, 1.0, Grid(2.0**-10))
    assert not np.any(made.rounded())
