"""Sums over the leading axis that compilers make in one pass."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

FOLD = 8


def sum_of(of: Callable[[Any], Any], values: Any) -> Any:
    """Adds of(values) over the leading axis, in 8 slices at a time, pairwise.

    `of` sees slices, so what it computes is neither stored nor, as a reduction's operand,
    computed entry by entry: one loop over vectors reads 8 slices and writes one.

    Args:
        of: from a tree of [m, ...] to another, one row for each row, whatever m.
        values: tree of [n, ...], n at least 1.

    Returns:
        Tree of [...]. A term takes part in at most 4 * ceil(log8 n) additions, so that of
        n < 2^30 positive floats the relative error is below 40 * 2^-24 = 2.4e-6.
    """
    number = len(jax.tree.leaves(values)[0])
    parts = min(FOLD, number)
    size = number // parts

    def rows(start: int, stop: int) -> Any:
        return jax.tree.map(lambda leaf: leaf[start:stop], values)

    total = _pairwise([of(rows(i * size, (i + 1) * size)) for i in range(parts)])
    total = _only(total) if size == 1 else sum_of(lambda added: added, total)
    if parts * size == number:
        return total
    return jax.tree.map(jnp.add, total, sum_of(of, rows(parts * size, number)))


def _only(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _pairwise(terms: list[Any]) -> Any:
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [jax.tree.map(jnp.add, *pair) for pair in pairs] + odd
    return terms[0]
