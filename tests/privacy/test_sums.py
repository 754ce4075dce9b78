"""Contracts of sums over the leading axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.privacy.grid import Grid
from dpaf_jax.privacy.summation import FOLD, sum_of

pytestmark = pytest.mark.usefixtures('optimised')

NUMBERS = [1, 2, 7, 8, 9, 15, 63, 64, 65, 193, 1000]


@pytest.mark.parametrize('store', [False, True])
@pytest.mark.parametrize('number', NUMBERS)
def test_every_row_is_added_once(number, store):
    rng = np.random.default_rng(number)
    rows = rng.integers(-(2**20), 2**20, size=(number, 3, 2)).astype(np.int32)
    made = jax.jit(lambda rows: sum_of(lambda part: 2 * part, rows, store=store))(rows)
    assert made.dtype == np.int32
    assert np.array_equal(made, 2 * rows.astype(np.int64).sum(axis=0))


@pytest.mark.parametrize('number', NUMBERS)
def test_what_is_added_may_be_a_tree_of_rows_that_belong_together(number):
    rng = np.random.default_rng(number)
    rows, factors = rng.integers(9, size=(number, 4)), rng.integers(9, size=number)

    def of(part):
        rows, factors = part
        assert len(rows) == len(factors) <= -(-number // FOLD) + FOLD
        return {'scaled': rows * factors[:, None], 'number': jnp.ones(len(rows))}

    made = sum_of(of, (jnp.asarray(rows), jnp.asarray(factors)))
    assert np.array_equal(made['scaled'], factors @ rows)
    assert made['number'] == number


@pytest.mark.parametrize('number', [10, 1000, 2**20 + 7, 5 * 2**21 - 1])
def test_positive_floats_lose_no_more_than_is_claimed(number):
    """Equal terms whose mantissa is long: every addition rounds, a plain sum to one side."""
    terms = np.full(number, 1 / 3, np.float32)
    terms[::3] = np.float32(2 / 7)
    exact = np.sum(terms, dtype=np.float64)
    made = jax.jit(lambda terms: sum_of(lambda part: part, terms))(terms)
    assert (
        abs(float(made) / exact - 1) <= 4 * np.ceil(np.log(number) / np.log(8)) * 2**-24
    )


def test_a_plain_running_sum_would_lose_more():
    terms = jnp.full(2**20, 1 / 3, jnp.float32)
    running = jax.lax.scan(lambda total, x: (total + x, None), 0.0, terms)[0]
    exact = np.sum(np.asarray(terms), dtype=np.float64)
    assert abs(float(running) / exact - 1) > 40 * 2**-24


def test_exact_sums_store_their_eighths():
    """Or XLA on CPU takes ten times as long for 16 to 100 rows."""
    grid, rows = Grid.of(1.0, 1.0), jnp.ones((16, 3))
    assert 'while' in str(jax.make_jaxpr(lambda rows: grid.sum(rows).low)(rows))
