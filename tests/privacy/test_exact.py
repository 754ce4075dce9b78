"""Contracts of exact sums: the grid, the rounding, and integers that do not overflow."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaf_jax.privacy.grid import (
    BLOCK,
    FACTOR_BLOCK,
    LIMIT_BITS,
    LOW_BITS,
    MAX_CONTRIBUTIONS,
    NOISE_BITS,
    ExactSum,
    Grid,
)
from dpaf_jax.privacy.noise import add_gaussian
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures('optimised')

POSITIVE = st.floats(1e-10, 1e10)
GRID = Grid(2.0**-10)
units = jax.jit(GRID.units)


@settings(max_examples=200)
@given(POSITIVE, POSITIVE)
def test_the_grid_is_the_finest_power_of_two_that_fits(sensitivity, std):
    spacing = Grid.of(sensitivity, std).spacing
    assert math.frexp(spacing)[0] == 0.5
    fits = [sensitivity / spacing <= 2**LIMIT_BITS, std / spacing <= 2**NOISE_BITS]
    assert all(fits)
    half = spacing / 2
    assert sensitivity / half > 2**LIMIT_BITS or std / half > 2**NOISE_BITS


@pytest.mark.parametrize('bound', [1e-38, 1e38])
def test_a_grid_outside_float32_is_refused(bound):
    with pytest.raises(UserError, match='l2_clip_norm'):
        Grid.of(bound, bound)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(-1000, 1000, width=32), min_size=8, max_size=8))
def test_rounding_is_toward_zero(values):
    made = np.asarray(units(np.array(values, np.float32)))
    assert np.array_equal(made, np.trunc(np.float64(values) / GRID.spacing))


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-40])
def test_no_value_leaves_the_range_of_a_contribution(value):
    made = int(units(np.float32([value]))[0])
    expected = 0 if math.isnan(value) else np.clip(value, -(2**10), 2**10) * 2**10
    assert made == int(expected)


def unit_rows(number, columns, rng):
    rows = rng.normal(size=(number, columns))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_rounding_raises_no_norm():
    rows = unit_rows(500, 40, np.random.default_rng(0))
    rounded = np.float64(units(rows)) * GRID.spacing
    norms = np.linalg.norm(rounded, axis=1)
    assert np.all(norms <= np.linalg.norm(rows.astype(np.float64), axis=1))
    assert np.all(norms > 1 - 40**0.5 * GRID.spacing)


def test_a_sum_is_the_same_in_any_order_and_on_any_number_of_devices():
    rows = unit_rows(64, 33, np.random.default_rng(1))
    expected = np.trunc(np.float64(rows) / GRID.spacing).astype(np.int64).sum(axis=0)
    for number in (1, 2, 8):
        fn = parallel.pmapped(
            lambda part: parallel.total(GRID.sum(part)), jax.local_devices()[:number]
        )
        for order in (slice(None), slice(None, None, -1)):
            made = parallel.unreplicate(fn(np.stack(np.split(rows[order], number))))
            assert np.array_equal(made.units(), expected)


def test_a_plain_float32_sum_would_move_by_more_than_a_record():
    """What exact sums are for; it fails if float32 did as well."""
    many, one = np.full((2**14, 1), 1.0, np.float32), np.float32([[2**-10 * 1.01]])
    far = np.float64(many.sum() + one[0, 0]) - np.float64(many.sum())
    assert far > 1.9 * one[0, 0]
    grid = Grid.of(1.0, 1e-3)
    both = grid.sum(np.concatenate([many, one])).units() - grid.sum(many).units()
    assert 0 < both[0] * grid.spacing <= one[0, 0]


@pytest.mark.parametrize('number', [1, BLOCK, BLOCK + 1, 5 * BLOCK])
def test_the_largest_contributions_do_not_overflow(number):
    made = GRID.sum(jnp.full((number, 2), -(2.0**10)))
    assert np.all(made.units() == -number * 2**LIMIT_BITS)


def test_sums_beyond_int32_are_exact():
    largest = GRID.sum(jnp.full((BLOCK, 1), 2.0**10))
    total = GRID.nothing((1,))
    for _ in range(2**15):  # as many blocks as there is room for
        total = jax.tree.map(np.add, total, jax.device_get(largest))
    assert total.units()[0] == 2**45
    assert total.high.dtype == np.int32 and total.rounded()[0] == 2.0**35


@pytest.mark.parametrize('index', [-1, 3, 2**31 - 1])
def test_a_row_outside_the_table_is_added_nowhere(index):
    made = GRID.sum(jnp.ones((2, 4)), jnp.array([index, 1], jnp.int32), 3)
    expected = np.zeros((3, 4))
    expected[1] = 2**10
    assert np.array_equal(made.units(), expected)


@pytest.mark.parametrize('units', [0, 1, -1, 2**14, -(2**15), 2**30, -(2**30) - 7])
def test_a_sum_is_read_back_as_it_was(units):
    made = ExactSum.of(jnp.array([units]), GRID.spacing)
    assert made.units()[0] == units
    assert made.rounded()[0] == np.float32(units * GRID.spacing)


def test_noisy_values_lie_on_the_grid_whatever_the_data():
    grid = Grid(2.0**-6)
    key, noises = np.arange(8, dtype=np.uint32), []
    for value in (0.0, 0.3, 777.7):
        sums = grid.sum(jnp.full((1, 5000), value))
        noisy = np.float64(add_gaussian(sums, key, 3.0)) / grid.spacing
        assert np.array_equal(noisy, np.round(noisy))
        noises.append(noisy - sums.units())
    assert np.array_equal(noises[0], noises[1]) and np.array_equal(noises[1], noises[2])
    assert len(np.unique(noises[0])) > 500


def test_a_sum_of_trees_is_added_leaf_by_leaf():
    tree = ExactSum.of({'a': jnp.array([5]), 'b': jnp.array([[-7, 2**20]])}, 0.5)
    made = (tree + tree).units()
    assert made['a'].tolist() == [10] and made['b'].tolist() == [[-14, 2**21]]


def test_any_number_of_parts_is_added_exactly():
    """-1 is 32767 above a multiple of 2^15, so 70 000 of them pass 2^31 without a carry."""
    parts = 70_000
    one = GRID.sum(jnp.full((1, 3), -GRID.spacing))

    @jax.jit
    def added(start):
        return jax.lax.scan(lambda sums, _: (sums + one, None), start, length=parts)[0]

    made = added(GRID.nothing((3,)))
    assert made.units().tolist() == [-parts] * 3
    assert made.rounded().tolist() == [-parts * GRID.spacing] * 3


def test_a_sum_of_the_most_contributions_there_may_be_has_room_for_its_noise():
    low, rest = 2 * (2**LOW_BITS - 1), MAX_CONTRIBUTIONS * 2**LIMIT_BITS
    assert rest + 13 * 2**NOISE_BITS < 2**31 * 2**LOW_BITS
    blocks_of_products = MAX_CONTRIBUTIONS // FACTOR_BLOCK
    assert blocks_of_products * low // 2 < 2**31 and 2**15 * low < 2**31  # devices


def test_blocks_of_products_and_devices_leave_a_sum_in_its_range():
    rows = -np.ones((3 * FACTOR_BLOCK, 1), np.float32)
    made = GRID.outer_sum(jnp.asarray(rows), jnp.asarray(-rows), 1.0)
    assert made.units() == -3 * FACTOR_BLOCK * 2**10
    assert 0 <= made.low < 2**LOW_BITS
    total = jax.tree.map(lambda leaf: 2**15 * leaf, GRID.sum(jnp.full((1,), -1.0)))
    assert total.rounded() == -(2.0**15)
