"""The axes along which features are read: those along which made-up pictures vary.

Noise is equally long in every direction that a row has, and images are not equally various.
Most columns hold what all pictures share, or what hardly any differ in. So features can be
read from the mean of random pictures (networks/fixed/dead_leaves.py), along their principal
axes, and each axis by a power of how much they vary there. What images differ in then fills
the row's bound, and noise is short where images are alike. A mean is best released along such
axes (an ellipsoid's: Nikolov, Talwar and Zhang 2013), and a linear classifier learns faster
along them; here no private image says which they are.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.networks.fixed import dead_leaves

Axes = dict[str, jax.Array]

PICTURES = 2000  # that axes are found by
BATCH = 100  # of them at a time
MOST = 1024  # axes of the same features
LEAST = 1e-3  # variance of an axis, in units of the mean one
WITHIN = 97.0  # per cent of the pictures that are not clipped


def num_axes(columns: int) -> int:
    """How many axes features of so many columns are read along."""
    return min(columns, MOST)


def of_pictures(
    rows: Callable[[jax.Array], Any], key: jax.Array, shape: tuple[int, int, int]
) -> Any:
    """What `rows` makes of `PICTURES` random pictures, [PICTURES, ...].

    Args:
        rows: of images [B, H, W, C] float32 in [-1, 1].
        key: public coins.
        shape: (H, W, C), H = W.
    """
    side, _, channels = shape
    shown = dead_leaves.pictures(key, PICTURES, side, channels)
    each = math.gcd(PICTURES, BATCH)
    seen = jax.lax.map(rows, shown.reshape(-1, each, *shape))
    return jax.tree.map(lambda x: x.reshape(PICTURES, *x.shape[2:]), seen)


def init_axes(rows: jax.Array, power: float, within: float = 1.0) -> Axes:
    """The axes of features, by rows [n, F] of random pictures; n is at least `MOST`.

    Args:
        rows: `of_pictures`.
        power: an axis is divided by this power of the pictures' variance along it. A
            quarter gives the least noise in all; less leaves more for the axes along
            which images differ most.
        within: most of the pictures are at most so far from their mean.

    Returns:
        `mean` [F] and `directions` [F, num_axes(F)].
    """
    mean = jnp.mean(rows, axis=0)
    with jax.default_matmul_precision('highest'):
        directions, variances = _principal(rows - mean, num_axes(rows.shape[1]))
        least = LEAST * jnp.mean(variances)
        directions *= (jnp.maximum(variances, 0.0) + least) ** -power
        norms = jnp.linalg.norm((rows - mean) @ directions, axis=1)
    most = jnp.percentile(norms, WITHIN)
    return {'mean': mean, 'directions': directions * within / most}


def _principal(rows: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
    """[F, number] orthonormal directions and [number] variances of centred rows [n, F]."""
    size, columns = rows.shape
    if columns <= size:
        variances, directions = jnp.linalg.eigh(rows.T @ rows / size)
        return directions[:, -number:], variances[-number:]
    # Fewer rows than columns: by their products, which are fewer.
    variances, combined = jnp.linalg.eigh(rows @ rows.T / size)
    directions = rows.T @ combined[:, -number:]
    return directions / jnp.linalg.norm(directions, axis=0), variances[-number:]


def along(rows: jax.Array, axes: Axes) -> jax.Array:
    """[B, F] features to [B, num_axes(F)], of norm at most 1."""
    read = (rows - axes['mean']) @ axes['directions']
    # Not the norm itself, whose gradient at 0 is none.
    length = jnp.sqrt(jnp.sum(jnp.square(read), axis=1, keepdims=True) + 1e-12)
    return read / jnp.maximum(1.0, length)
