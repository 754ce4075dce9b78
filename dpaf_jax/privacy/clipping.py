"""Per-example gradients by vmap(grad), compressed, clipped and summed.

Guarantee: `clipped_gradient_sum` changes by at most `l2_clip_norm` when one unit's
examples become padding, and by at most twice that when they change to anything else,
whatever the parameters, whatever the images, NaN and infinity included; exactly so where
it is given a grid (grid.py).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.privacy.grid import Grid
from dpaf_jax.privacy.summation import settled, sum_of
from dpaf_jax.runtime.errors import UserError

# Room for float32 rounding: the clipped norm stays below the bound in exact arithmetic.
MARGIN = 1 - 1e-5
SAMPLE = 2**13  # at least so many entries of a long vector decide on its threshold
SMALL = 2**12  # entries of a leaf, below which it is not worth loops of its own


def clip_factor(vector: Any, l2_clip_norm: float) -> jax.Array:
    """What a vector is multiplied by so that its norm is at most `l2_clip_norm`.

    Args:
        vector: float32 of any shape, or a tree of such; treated as one vector.
        l2_clip_norm: above 0; infinity clips nothing.

    Returns:
        [] float32 in [0, 1]: 0 if an entry is NaN or infinite, or if the norm is more than
        1e18 times the bound, where its square may not be a float32.
    """
    # In units of the bound a square that is too small for a float32 does not matter.
    inverse = 1 / l2_clip_norm
    # Relative error below 6e-6 for up to 40 leaves (`sum_of`); the norm's is half of that,
    # which MARGIN covers. A plain sum of n may lose as much as n * 2^-24.
    squares = [
        sum_of(lambda part: jnp.square(part * inverse), leaf.ravel())
        for leaf in jax.tree.leaves(vector)
        if leaf.size
    ]
    square = functools.reduce(jnp.add, squares, jnp.float32(0))
    # The square root has no gradient at 0.
    factor = jnp.minimum(1.0, MARGIN / jnp.sqrt(jnp.maximum(square, 1e-30)))
    return jnp.where(jnp.isfinite(square), factor, 0.0)


def clip_vector(vector: Any, l2_clip_norm: float) -> Any:
    """Scales a vector down to norm at most `l2_clip_norm`: see `clip_factor`.

    Guarantee: the norm of the result, in exact arithmetic, is at most `l2_clip_norm`,
    whatever the vector; one that is not finite becomes 0.

    Args:
        vector: as for `clip_factor`.
        l2_clip_norm: as for `clip_factor`.

    Returns:
        The tree, scaled.

    Example:
        >>> gradient = {'kernel': jnp.array([3.0, 0.0]), 'bias': jnp.array([4.0])}
        >>> clipped = clip_vector(gradient, 1.0)
        >>> [round(float(leaf[0]), 3) for leaf in jax.tree.leaves(clipped)]
        [0.8, 0.6]
        >>> clip_vector(jnp.array([jnp.nan, 1.0]), 1.0)
        Array([0., 0.], dtype=float32)
    """
    factor = clip_factor(vector, l2_clip_norm)
    return jax.tree.map(lambda leaf: _scaled(leaf, factor), vector)


def _scaled(leaf: jax.Array, factor: jax.Array) -> jax.Array:
    """Entries times a factor; whatever they are, 0 where it is 0."""
    return jnp.where(factor > 0, leaf * factor, 0.0)


def least_rank(vector: Any, keep_fraction: float) -> jax.Array:
    """The rank from which on `keep_largest` keeps a fraction of a vector's entries.

    DPAF keeps the top 90 % of each per-example gradient (conference version, section
    4.1). Sorting would dominate the step; the threshold is found by bisection on the
    float's bit pattern, which orders magnitudes, down to a relative width of 2^-7; in a
    long vector among every so-manieth entry alone.

    Args:
        vector: float32 of any shape, or a tree of such; treated as one vector of n.
        keep_fraction: in (0, 1]; 1 keeps everything.

    Returns:
        [] int32 that at least round-up(keep_fraction * n) entries reach; from n = 3 * SAMPLE
        on about as many: for 90 %, the standard error is below 0.35 % of n.
    """
    if keep_fraction >= 1:
        return jnp.int32(0)
    leaves = jax.tree.leaves(vector)
    # Odd, so that with widths that are powers of two every map has its turn.
    stride = max(sum(leaf.size for leaf in leaves) // SAMPLE - 1, 0) | 1
    sample = jnp.concatenate([leaf.ravel()[::stride] for leaf in leaves])
    wanted = -(-int(sample.size * keep_fraction * 2**20) // 2**20)
    ranks = _rank(sample)

    def halve(
        _: int, bounds: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        low, high = bounds  # count(rank >= low) is enough, count(rank >= high) is not
        middle = (low + high) // 2
        enough = jnp.sum(ranks >= middle) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    return jax.lax.fori_loop(0, 15, halve, (jnp.int32(0), jnp.int32(2**15)))[0]


def keep_largest(vector: Any, least: jax.Array) -> Any:
    """Zeroes all but the largest entries by magnitude (gradient compression).

    Args:
        vector: float32 of any shape, or a tree of such.
        least: of `least_rank`.

    Example:
        >>> gradient = jnp.array([0.1, -3.0, 0.5, 2.0])
        >>> keep_largest(gradient, least_rank(gradient, 0.5))
        Array([ 0., -3.,  0.,  2.], dtype=float32)
    """
    return jax.tree.map(lambda leaf: jnp.where(_rank(leaf) >= least, leaf, 0.0), vector)


def _rank(values: jax.Array) -> jax.Array:
    """Orders magnitudes: the sign bit is 0, the upper 16 bits fit int32."""
    return jax.lax.bitcast_convert_type(jnp.abs(values), jnp.int32) >> 16


def clipped_gradient_sum(
    loss_fn: Callable[..., jax.Array],
    params: Any,
    units: Any,
    is_padding_unit: jax.Array,
    *,
    l2_clip_norm: float,
    grid: Grid | None,
    keep_fraction: float = 1.0,
    signs: bool = False,
) -> Any:
    """Sums the clipped gradients of independent units.

    Guarantee: see the module. Each unit's gradient depends on that unit's examples and
    on `params` alone, so replacing one unit by padding moves the sum by at most
    `l2_clip_norm`.

    Args:
        loss_fn: (params, unit) -> scalar loss of one unit.
        params: tree of the parameters to differentiate by; public or noised.
        units: tree of arrays with leading axis [U].
        is_padding_unit: [U] bool; those contribute nothing.
        l2_clip_norm: bound on each unit's contribution; infinity for no clipping.
        grid: on which contributions are added exactly; None, where no noise follows, for
            a plain sum.
        keep_fraction: of the entries by `keep_largest`, before the clip; 1 keeps all.
        signs: whether each kept entry becomes its sign, before the clip.

    Returns:
        The sum, not the mean, in the shape of `params`: an `ExactSum` of such trees, or
        without a grid one tree of float32.
    """
    each = jax.vmap(jax.grad(loss_fn), in_axes=(None, 0))(params, units)
    joined, apart = _join_small(each)
    gradients = settled(joined)

    def compressed(gradient: Any, least: jax.Array) -> Any:
        kept = keep_largest(gradient, least)
        return jax.tree.map(jnp.sign, kept) if signs else kept

    def measure(gradient: Any, is_padding: jax.Array) -> tuple[jax.Array, jax.Array]:
        least = least_rank(gradient, keep_fraction)
        factor = clip_factor(compressed(gradient, least), l2_clip_norm)
        return least, jnp.where(is_padding, 0.0, factor)

    def contribution(gradient: Any, least: jax.Array, factor: jax.Array) -> Any:
        kept = compressed(gradient, least)
        return jax.tree.map(lambda leaf: _scaled(leaf, factor), kept)

    def contributions(part: Any) -> Any:
        return jax.vmap(contribution)(*part)

    measured = gradients, *jax.vmap(measure)(gradients, is_padding_unit)
    if grid is None:
        return apart(sum_of(contributions, measured, store=True))
    total = grid.sum(measured, of=contributions)
    return dataclasses.replace(total, high=apart(total.high), low=apart(total.low))


def _join_small(each: Any) -> tuple[list[jax.Array], Callable[[list[jax.Array]], Any]]:
    """Joins the small leaves of a tree of [U, ...]: every array costs time to compile.

    Returns:
        Arrays [U, ...], and what makes a tree again of their sums.
    """
    leaves, structure = jax.tree.flatten(each)
    small = [leaf.reshape(len(leaf), -1) for leaf in leaves if _is_small(leaf)]
    joined = [leaf for leaf in leaves if not _is_small(leaf)]
    if small:
        joined.append(jnp.concatenate(small, axis=1))
    ends = np.cumsum([leaf.shape[1] for leaf in small])

    def apart(sums: list[jax.Array]) -> Any:
        large = iter(sums)
        pieces = iter(jnp.split(sums[-1], ends[:-1]) if small else [])
        found = [
            next(pieces).reshape(leaf.shape[1:]) if _is_small(leaf) else next(large)
            for leaf in leaves
        ]
        return jax.tree.unflatten(structure, found)

    return joined, apart


def _is_small(leaf: jax.Array) -> bool:
    return leaf[0].size < SMALL


@functools.cache
def require_arithmetic() -> None:
    """Refuses a backend whose arithmetic loses the clip, before any private image is read.

    The module's guarantee asks of the compiler that a test for NaN or infinity stays one.
    XLA's fast-math flags let it assume that there are none. So one unit of a small sum is
    poisoned, and must then move the sum by no more than the bound.

    Raises:
        UserError: it moves the sum by more.
    """
    grid, bound = Grid.of(1.0, 1.0), 1.0

    @jax.jit
    def summed(units: jax.Array, is_padding_unit: jax.Array) -> Any:
        params = jnp.zeros(units.shape[1:])
        return clipped_gradient_sum(
            jnp.vdot, params, units, is_padding_unit, l2_clip_norm=bound, grid=grid
        )

    units, nobody = np.ones((4, 50), np.float32), np.zeros(4, bool)
    second = np.arange(4) == 1
    without = np.asarray(summed(units, second).units())
    for poison in (np.nan, np.inf, -np.inf, 1e30):
        units[1, 7] = poison
        moved = np.asarray(summed(units, nobody).units()) - without
        if np.linalg.norm(moved * grid.spacing) > bound:
            raise UserError(
                'XLA_FLAGS',
                f'let a gradient with {poison} in it pass the clip',
                'Leave out fast-math flags: with them no epsilon holds',
            )
