"""Exact sums of private contributions: integers on a public grid.

A float32 sum is rounded after every addition, by an amount that depends on all other
records: one record moves the computed sum by more than the true one, and in bits that
noise of float32 does not cover. Here a contribution is rounded toward zero to multiples of
a public spacing, which never raises its norm, and from there on integers are added: in any
order and on any number of devices, the sum is exact. One record then moves what is
released by its own rounded contribution, in exact arithmetic.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.privacy.summation import sum_of
from dpaf_jax.runtime.errors import UserError

LIMIT_BITS = 20  # an entry of a contribution is at most 2^20 units of the grid
BLOCK = 2**10  # so many contributions are added in one int32: 2^30 at most
LOW_BITS = 15  # of a sum, kept apart from the rest
FACTOR_BITS = 8  # a factor of an outer product is at most 2^8 units of its own grid
FACTOR_BLOCK = 2**8  # so many products are added in float32: 2^24 at most
NOISE_BITS = 18  # the noise's standard deviation is at most 2^18 units
# Of one sum, all devices together: 2^44 units, where there is room for 2^46.
MAX_CONTRIBUTIONS = 2**24


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=['high', 'low'],
    meta_fields=['spacing'],
)
@dataclasses.dataclass(frozen=True)
class ExactSum:
    """Sums (high * 2^LOW_BITS + low) * spacing.

    Attributes:
        high, low: int32 trees of one structure. `low` is in [0, 2^LOW_BITS), after every
            addition: what is above is carried. So sums of any number of parts are exact,
            and `high` has room for those of `MAX_CONTRIBUTIONS`, which a plan sees to. 2^16
            sums may also be added leaf by leaf, as a sum over devices does, before
            `carried` or `rounded`.
        spacing: of the grid, a power of two.
    """

    high: Any
    low: Any
    spacing: float

    @classmethod
    def of(cls, units: Any, spacing: float) -> 'ExactSum':
        """From a tree of int32."""
        low = jax.tree.map(lambda k: k & (2**LOW_BITS - 1), units)
        return cls(jax.tree.map(lambda k: k >> LOW_BITS, units), low, spacing)

    def __add__(self, other: 'ExactSum') -> 'ExactSum':
        added: ExactSum = jax.tree.map(operator.add, self, other)
        return added.carried()

    def carried(self) -> 'ExactSum':
        """The same sums with `low` in its range again."""
        rest = ExactSum.of(self.low, self.spacing)
        high = jax.tree.map(operator.add, self.high, rest.high)
        return dataclasses.replace(rest, high=high)

    def rounded(self) -> Any:
        """As float32, each entry rounded: only for what is noisy already."""

        def value(high: jax.Array, low: jax.Array) -> jax.Array:
            rest = low.astype(jnp.float32) * self.spacing
            return high.astype(jnp.float32) * (2**LOW_BITS * self.spacing) + rest

        sums = self.carried()
        return jax.tree.map(value, sums.high, sums.low)

    def units(self) -> Any:
        """As int64 on the host, exact: for tests and audits."""
        return jax.tree.map(
            lambda high, low: np.int64(high) * 2**LOW_BITS + np.int64(low),
            jax.device_get(self.high),
            jax.device_get(self.low),
        )


def add(sums: Any, more: Any) -> Any:
    """Adds two parts of one query: exact ones, or float32 trees where nothing is private."""
    if isinstance(sums, ExactSum):
        return sums + more
    return jax.tree.map(jnp.add, sums, more)


@dataclasses.dataclass(frozen=True)
class Grid:
    """Where contributions to one mechanism lie; public.

    Attributes:
        spacing: a power of two.
    """

    spacing: float

    @classmethod
    def of(cls, l2_sensitivity: float, noise_std: float) -> 'Grid':
        """The finest grid on which contributions and noise fit their integers.

        Args:
            l2_sensitivity: at least the norm of a contribution.
            noise_std: of the noise added to each coordinate, above 0.

        Raises:
            UserError: the spacing or its inverse would be no float32.

        Example:
            Sums on a grid do not depend on the order; float32 sums do.

            >>> grid = Grid.of(l2_sensitivity=1.0, noise_std=0.5)
            >>> grid.spacing == 2.0**-19
            True
            >>> parts = jnp.array([0.1, 0.7, 0.3, 0.9])
            >>> forward, backward = grid.sum(parts), grid.sum(parts[::-1])
            >>> bool(forward.units() == backward.units())
            True
        """
        least = max(l2_sensitivity / 2**LIMIT_BITS, noise_std / 2**NOISE_BITS)
        mantissa, exponent = math.frexp(least)
        exponent -= mantissa == 0.5
        if not -100 < exponent < 100:  # its inverse must be a float32
            raise UserError(
                'config',
                f'bounds contributions by {l2_sensitivity:g} and adds noise of {noise_std:g}',
                'Choose an l2_clip_norm between 1e-20 and 1e20',
            )
        return cls(math.ldexp(1.0, exponent))

    def units(self, values: jax.Array) -> jax.Array:
        """Float32 values as int32 multiples of the spacing, rounded toward zero.

        No magnitude grows. NaN becomes 0; beyond 2^LIMIT_BITS units, where no clipped
        contribution lies, values are cut.
        """
        scaled = values * (1 / self.spacing)  # exact: a power of two
        limit = 2.0**LIMIT_BITS
        safe = jnp.where(jnp.isnan(scaled), 0.0, jnp.clip(scaled, -limit, limit))
        return safe.astype(jnp.int32)

    def nothing(self, shape: tuple[int, ...]) -> ExactSum:
        """A sum to start from, on the host."""
        return ExactSum.of(np.zeros(shape, np.int32), self.spacing)

    def sum(
        self,
        values: Any,
        index: jax.Array | None = None,
        rows: int = 1,
        of: Callable[[Any], Any] = lambda part: part,
    ) -> ExactSum:
        """Adds contributions exactly.

        Args:
            values: tree of [n, ...]; of float32, unless `of` says otherwise.
            index: [n] int32, which row of the result each is added to; outside
                [0, rows) it is added to none.
            rows: of the result, where there is an index.
            of: from some of the values, [m, ...], to their contributions, [m, ...] float32.
                What is computed there entry by entry is added without being stored.

        Returns:
            [...], or [rows, ...], for each leaf of the contributions.
        """
        total = None

        def units(part: Any) -> Any:
            return jax.tree.map(self.units, of(part))

        for start in range(0, len(jax.tree.leaves(values)[0]), BLOCK):
            block = slice(start, start + BLOCK)
            part = jax.tree.map(lambda leaf, block=block: leaf[block], values)
            if index is None:
                added = sum_of(units, part, store=True)
            else:
                where = jnp.where(index[block] < 0, rows, index[block])  # -1: no row
                add = functools.partial(
                    jax.ops.segment_sum, segment_ids=where, num_segments=rows
                )
                added = jax.tree.map(add, units(part))
            exact = ExactSum.of(added, self.spacing)
            total = exact if total is None else total + exact
        assert total is not None
        return total

    def outer_sum(self, left: jax.Array, right: jax.Array, bound: float) -> ExactSum:
        """Adds outer products left_i x right_i exactly, as matrix products.

        Each factor is rounded toward zero on a grid of its own, so neither norm grows, and
        the products of the two grids lie on this one. A row's contribution has at most the
        product of the two norms. Whole numbers up to 2^24 are exact in float32, so a matrix
        product adds them exactly in whatever order.

        Args:
            left: [n, F] float32, rows of norm at most 1.
            right: [n, K] float32, rows of norm at most `bound`; a row of zeros
                contributes nothing.
            bound: finite.

        Returns:
            [F, K].
        """
        spacing_right = 2.0 ** (math.ceil(math.log2(bound)) - FACTOR_BITS)
        # About 16 units for an entry of typical size, but the product must be on the grid.
        typical = 2.0 ** -max(FACTOR_BITS, 4 + round(math.log2(left.shape[1]) / 2))
        spacing_left = max(typical, self.spacing / spacing_right)
        if (excess := spacing_left / typical) > 4:  # share the coarseness
            share = 2.0 ** (math.log2(excess) // 2)
            spacing_left, spacing_right = spacing_left / share, spacing_right * share
        multiple = int(spacing_left * spacing_right / self.spacing)

        def blocks(rows: jax.Array, spacing: float) -> jax.Array:
            limit = 2.0**FACTOR_BITS
            scaled = jnp.nan_to_num(jnp.clip(rows / spacing, -limit, limit))
            padded = jnp.pad(
                jnp.trunc(scaled), ((0, -len(rows) % FACTOR_BLOCK), (0, 0))
            )
            return padded.reshape(-1, FACTOR_BLOCK, rows.shape[1])

        products = jnp.einsum(
            'bnf,bnk->bfk',
            blocks(left, spacing_left),
            blocks(right, spacing_right),
            precision='highest',
        )
        each = ExactSum.of(products.astype(jnp.int32) * multiple, self.spacing)
        summed: ExactSum = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), each)
        return summed.carried()
