"""DPAGG: the mechanism of DPAF's forward phase.

Guarantee of `dpagg`: one record moves the exact sums by at most the row bound,
because its row is clipped to that bound and enters one aggregate; the noise has
standard deviation noise_multiplier x l2_sensitivity; the divisor is public.
Source: DPAF (conference version) section 3.2, equations 1 and 2.
"""

import jax
import jax.numpy as jnp

from dpaf_jax.privacy.clipping import clip_vector
from dpaf_jax.privacy.grid import ExactSum, Grid
from dpaf_jax.privacy.noise import noisy_total
from dpaf_jax.privacy.summation import settled


def aggregate(
    rows: jax.Array,
    segment_ids: jax.Array,
    is_padding_example: jax.Array,
    num_aggregates: int,
    row_bound: float,
    grid: Grid | None = None,
) -> jax.Array | ExactSum:
    """This device's sum of bounded rows, by aggregate.

    Guarantee: one record moves the result by at most `row_bound`, exactly so on a grid.

    Args:
        rows: [B, F] float32, one row per private example.
        segment_ids: [B] int32 in [0, num_aggregates): the record's class for
            class-pure batches, 0 for mixed ones.
        is_padding_example: [B] bool.
        num_aggregates: A, of the result.
        row_bound: l2 norm to which each row is clipped; infinity for no clipping.
        grid: on which private rows are added exactly. Without one the sum is plain and
            has a gradient: for fakes, and where no noise follows.

    Returns:
        [num_aggregates, F]: an `ExactSum`, or float32 without a grid. An index outside
        these contributes nothing.

    Example:
        The second row is too long; the third is padding.

        >>> rows = jnp.array([[0.6, 0.0], [0.0, 8.0], [1.0, 1.0]])
        >>> is_padding = jnp.array([False, False, True])
        >>> labels = jnp.array([0, 1, 1])
        >>> aggregate(rows, labels, is_padding, 2, row_bound=1.0).round(3)
        Array([[0.6, 0. ],
               [0. , 1. ]], dtype=float32)
    """
    rows = settled(rows) if grid else rows
    bounded = jax.vmap(lambda row: clip_vector(row, row_bound))(rows)
    if grid:
        nowhere = jnp.where(is_padding_example, num_aggregates, segment_ids)
        return grid.sum(bounded, nowhere, num_aggregates)
    member = jax.nn.one_hot(segment_ids, num_aggregates, dtype=rows.dtype)
    member = jnp.where(is_padding_example[:, None], 0.0, member)
    return jnp.matmul(member.T, bounded, precision='highest')


def dpagg(
    sums: jax.Array | ExactSum,
    key_data: jax.Array,
    noise_std: float,
    expected_count: jax.Array,
) -> jax.Array:
    """Releases an aggregate: sum over devices, noise, division by a public count.

    Args:
        sums: [num_aggregates, F], this device's `aggregate`.
        key_data: [8] uint32 of this step and of this side (real or fake) alone.
        noise_std: noise_multiplier x l2_sensitivity.
        expected_count: [num_aggregates, 1] public expected number of rows in each sum.

    Returns:
        [num_aggregates, F] float32: safe to reuse without further cost; computing it
        again from private data with another key is another release.
    """
    return noisy_total(sums, key_data, noise_std) / expected_count
