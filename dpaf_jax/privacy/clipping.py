"""Per-example gradients by vmap(grad), compressed, clipped and summed.

Guarantee: `clipped_gradient_sum` changes by at most `l2_clip_norm` when one unit's
examples become padding, and by at most twice that when they change to anything else,
whatever the parameters, whatever the images, NaN and infinity included; exactly so where
it is given a grid (exact.py).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dpaf_jax.privacy.exact import Grid

# Room for float32 rounding: the clipped norm stays below the bound in exact arithmetic.
MARGIN = 1 - 1e-5


def clip_vector(vector: jax.Array, l2_clip_norm: float) -> jax.Array:
    """Scales a vector down to norm at most `l2_clip_norm`.

    Args:
        vector: any shape, float32; treated as one vector.
        l2_clip_norm: above 0; infinity clips nothing.

    Returns:
        The vector, scaled; all zeros if any entry is NaN or infinite. Entries as large
        as float32 allows do not overflow the norm.
    """
    finite = jnp.all(jnp.isfinite(vector))
    safe = jnp.where(finite, vector, 0.0).ravel()
    # The result does not depend on this scale, so no gradient needs to pass through it.
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(safe)))
    unit = safe / jnp.where(largest > 0, largest, 1.0)
    # Squares of `unit` sum to at least 1 unless all are 0, where sqrt has no gradient.
    norm = jnp.sqrt(jnp.maximum(_sum_of_squares(unit), 1.0))
    clipped = unit * jnp.minimum(largest, l2_clip_norm * MARGIN / norm)
    return clipped.reshape(vector.shape)


def _sum_of_squares(vector: jax.Array) -> jax.Array:
    """By halves: with n entries its relative error is below (log2(n) + 2) * 2^-24.

    A plain sum may lose as much as n * 2^-24, which MARGIN would not cover; how it is
    ordered is up to the backend.
    """
    terms = jnp.square(vector)
    while terms.size > 1:
        terms = jnp.pad(terms, (0, terms.size % 2))
        half = terms.size // 2
        terms = terms[:half] + terms[half:]
    return terms[0]


def keep_largest(vector: jax.Array, keep_fraction: float) -> jax.Array:
    """Zeroes all but the largest entries by magnitude (gradient compression).

    DPAF keeps the top 90 % of each per-example gradient (conference version, section
    4.1). Sorting would dominate the step; the threshold is found by bisection on the
    float's bit pattern, which orders magnitudes, down to a relative width of 2^-8.

    Args:
        vector: [n] float32.
        keep_fraction: in (0, 1]; 1 keeps everything.

    Returns:
        [n] float32 with at least round-up(keep_fraction * n) entries kept.
    """
    if keep_fraction >= 1:
        return vector
    wanted = -(-int(vector.size * keep_fraction * 2**20) // 2**20)
    # The sign bit is 0, so the upper 16 bits (8 of exponent, 7 of mantissa) fit int32.
    rank = jax.lax.bitcast_convert_type(jnp.abs(vector), jnp.int32) >> 16

    def halve(
        _: int, bounds: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        low, high = bounds  # count(rank >= low) is enough, count(rank >= high) is not
        middle = (low + high) // 2
        enough = jnp.sum(rank >= middle) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, 15, halve, (jnp.int32(0), jnp.int32(2**15)))
    return jnp.where(rank >= low, vector, 0.0)


def clipped_gradient_sum(
    loss_fn: Callable[..., jax.Array],
    params: Any,
    units: Any,
    is_padding_unit: jax.Array,
    *,
    l2_clip_norm: float,
    grid: Grid | None,
    keep_fraction: float = 1.0,
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
        keep_fraction: see `keep_largest`; applied before the clip.

    Returns:
        The sum, not the mean, in the shape of `params`: an `ExactSum` of such trees, or
        without a grid one tree of float32.
    """
    gradients = jax.vmap(jax.grad(loss_fn), in_axes=(None, 0))(params, units)
    flat = jax.vmap(lambda tree: ravel_pytree(tree)[0])(gradients)

    def contribution(vector: jax.Array, is_padding: jax.Array) -> jax.Array:
        clipped = clip_vector(keep_largest(vector, keep_fraction), l2_clip_norm)
        return jnp.where(is_padding, 0.0, clipped)

    contributions = jax.vmap(contribution)(flat, is_padding_unit)
    total = grid.sum(contributions) if grid else jnp.sum(contributions, axis=0)
    return jax.tree.map(lambda vector: _in_shape_of(params, vector), total)


def _in_shape_of(tree: Any, vector: jax.Array) -> Any:
    """A flat vector in the shapes of a tree's leaves, in any dtype."""
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = jnp.split(vector, ends[:-1])
    shaped = [p.reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)
