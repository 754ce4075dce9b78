"""One random change of all images alike, real ones and synthetic ones.

Zhao and Bilen 2021, "Dataset condensation with differentiable siamese augmentation": a move, a
turn, a stretch, a mirror, or a hole; bounds are theirs. Changes of colour are left out.
"""

import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

MOVE = 1 / 8  # of the side, at most
TURN = math.radians(15)
STRETCH = 1.2  # along either axis, or its inverse
HOLE = 1 / 2  # of the side
KINDS = 5


class Change(NamedTuple):
    """A linear map of pixels, the same for every image.

    Attributes:
        places: [pixels, 4] int32, where a pixel comes from.
        weights: [pixels, 4] float32, how much of each; of nothing it is black.
    """

    places: jax.Array
    weights: jax.Array


def draw_change(key: jax.Array, side: int) -> Change:
    """One of the kinds, by public coins, for images of side x side."""
    keys = jax.random.split(key, 6)
    kind = jax.random.randint(keys[0], (), 0, KINDS)

    def only(which: int, value: jax.Array, otherwise: float) -> jax.Array:
        return jnp.where(kind == which, value, otherwise)

    def uniform(key: jax.Array, most: float, *shape: int) -> jax.Array:
        return jax.random.uniform(key, shape, minval=-most, maxval=most)

    move = only(0, uniform(keys[1], MOVE * side, 2), 0.0)
    turn = only(1, uniform(keys[2], TURN), 0.0)
    stretch = only(2, jnp.exp(uniform(keys[3], math.log(STRETCH), 2)), 1.0)
    mirror = only(3, jnp.sign(uniform(keys[4], 1.0)), 1.0)
    scale = stretch[0], stretch[1] * mirror
    centre = (side - 1) / 2
    line = jnp.arange(side) - centre
    down, along = (axis.ravel() for axis in jnp.meshgrid(line, line, indexing='ij'))
    sine, cosine = jnp.sin(turn), jnp.cos(turn)
    sources = (
        scale[0] * (cosine * down - sine * along) + centre + move[0],
        scale[1] * (sine * down + cosine * along) + centre + move[1],
    )
    change = _between(sources, side)
    hole = only(4, uniform(keys[5], side / 2, 2), 2.0 * side)
    half = HOLE * side / 2
    open_ = (jnp.abs(down - hole[0]) < half) & (jnp.abs(along - hole[1]) < half)
    return change._replace(weights=jnp.where(open_[:, None], 0.0, change.weights))


def _between(sources: tuple[jax.Array, jax.Array], side: int) -> Change:
    """Bilinear interpolation at real coordinates, [pixels] each."""
    places, weights = [], []
    for i, j in itertools.product((0, 1), repeat=2):
        corner = [
            jnp.floor(axis) + by for axis, by in zip(sources, (i, j), strict=True)
        ]
        inside, weight = jnp.bool_(True), jnp.float32(1)
        for axis, at in zip(sources, corner, strict=True):
            inside &= (at >= 0) & (at < side)
            weight *= 1 - jnp.abs(axis - at)
        place = corner[0] * side + corner[1]
        places.append(jnp.where(inside, place, 0).astype(jnp.int32))
        weights.append(jnp.where(inside, weight, 0.0))
    return Change(jnp.stack(places, axis=1), jnp.stack(weights, axis=1))


def changed(change: Change, images: jax.Array) -> jax.Array:
    """Every image by the one change.

    Args:
        change: of `draw_change`.
        images: [B, S, S, C] float32 in [-1, 1].

    Returns:
        [B, S, S, C] in [-1, 1].
    """
    batch, side, _, channels = images.shape
    light = (images + 1).transpose(1, 2, 0, 3).reshape(side * side, -1)
    taken = sum(
        change.weights[:, i, None] * light[change.places[:, i]] for i in range(4)
    )
    moved = jnp.asarray(taken).reshape(side, side, batch, channels)
    return moved.transpose(2, 0, 1, 3) - 1
