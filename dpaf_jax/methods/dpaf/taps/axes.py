"""The axes along which a tap is read: those along which made-up pictures vary.

Noise is equally long in every direction that a row has, and images are not equally various.
Most of a tap's columns hold what all pictures share, or what hardly any differ in. So a tap
can be read from the mean of random pictures (networks/fixed/dead_leaves.py), along their
principal axes, and each axis by a power of how much they vary there. What images differ in
then fills the row's bound, and noise is short where images are alike. A mean is best released
along such axes (an ellipsoid's: Nikolov, Talwar and Zhang 2013); here no private image says
which they are.
"""

import jax
import jax.numpy as jnp

Axes = dict[str, jax.Array]

PICTURES = 2000  # that axes are found by
MOST = 1024  # axes of a tap
# An axis is divided by this power of the pictures' variance along it. A quarter gives the
# least noise in all; less leaves more for the axes along which images differ most.
POWER = 0.125
LEAST = 1e-3  # variance of an axis, in units of the mean one
WITHIN = 97.0  # per cent of the pictures that are not clipped


def num_axes(columns: int) -> int:
    """How many axes a tap of so many columns is read along."""
    return min(columns, MOST)


def init_axes(rows: jax.Array) -> Axes:
    """The axes of a tap, by its rows [n, F] of random pictures; n is at least `MOST`.

    Returns:
        `mean` [F] and `directions` [F, num_axes(F)], in units in which most of the
        pictures are at most 1 from their mean.
    """
    mean = jnp.mean(rows, axis=0)
    with jax.default_matmul_precision('highest'):
        directions, variances = _principal(rows - mean, num_axes(rows.shape[1]))
        least = LEAST * jnp.mean(variances)
        directions *= (jnp.maximum(variances, 0.0) + least) ** -POWER
        norms = jnp.linalg.norm((rows - mean) @ directions, axis=1)
    return {'mean': mean, 'directions': directions / jnp.percentile(norms, WITHIN)}


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
    """[B, F] rows of a tap to [B, num_axes(F)], of norm at most 1."""
    read = (rows - axes['mean']) @ axes['directions']
    # Not the norm itself, whose gradient at 0 is none.
    length = jnp.sqrt(jnp.sum(jnp.square(read), axis=1, keepdims=True) + 1e-12)
    return read / jnp.maximum(1.0, length)
