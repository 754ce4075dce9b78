"""Distances between many images, or rows of a table, in chunks of matrix products."""

from typing import NamedTuple

import numpy as np

CHUNK = 2048  # rows and columns of a block: 16 MiB of float32
SIDE = 32  # larger images are reduced to this where an attack wants features


class Nearest(NamedTuple):
    """For each query, its nearest base image.

    Attributes:
        distance: [n] float32, Euclidean.
        place: [n] int64, into the base.
    """

    distance: np.ndarray
    place: np.ndarray


def flatten(images: np.ndarray) -> np.ndarray:
    """[n, H, W, C] uint8, or a table's float32 in [0, 1], to [n, H*W*C] in [0, 1]."""
    flat = np.asarray(images, np.float32).reshape(len(images), -1)
    return flat / 255 if images.dtype == np.uint8 else flat


def reduced(images: np.ndarray) -> np.ndarray:
    """As `flatten`, of images reduced by means over squares to a side of at most 32.

    Columns of a table have no neighbours: all of them stay.
    """
    if images.dtype != np.uint8:
        return flatten(images)
    factor = -(-images.shape[1] // SIDE)
    side = images.shape[1] // factor
    rows = []
    for start in range(0, len(images), CHUNK):
        part = np.asarray(images[start : start + CHUNK], np.float32)
        part = part[:, : side * factor, : side * factor]
        squares = part.reshape(len(part), side, factor, side, factor, -1)
        rows.append(squares.mean(axis=(2, 4)).reshape(len(part), -1) / 255)
    return np.concatenate(rows)


def squared_distances(queries: np.ndarray, base: np.ndarray) -> np.ndarray:
    """[n, d] and [m, d] float32 to [n, m] squared Euclidean distances, at least 0."""
    squares = (queries**2).sum(axis=1)[:, None] + (base**2).sum(axis=1)
    return np.maximum(squares - 2 * (queries @ base.T), 0)


def nearest(queries: np.ndarray, base: np.ndarray) -> Nearest:
    """The nearest base image of every query, by pixels.

    Args:
        queries: [n, H, W, C] uint8, or rows [n, 1, F, 1] float32 in [0, 1].
        base: [m, H, W, C] of the same kind, m at least 1.

    Returns:
        Distances (recomputed pair by pair: a product loses digits where they are small)
        and indices.
    """
    best = np.full(len(queries), np.inf, np.float32)
    index = np.zeros(len(queries), np.int64)
    for column in range(0, len(base), CHUNK):
        block = flatten(base[column : column + CHUNK])
        for row in range(0, len(queries), CHUNK):
            rows = slice(row, row + CHUNK)
            squares = squared_distances(flatten(queries[rows]), block)
            here = squares.argmin(axis=1)
            least = np.take_along_axis(squares, here[:, None], axis=1)[:, 0]
            closer = least < best[rows]
            index[rows] = np.where(closer, column + here, index[rows])
            best[rows] = np.where(closer, least, best[rows])
    return Nearest(_pairwise(queries, base, index), index)


def _pairwise(queries: np.ndarray, base: np.ndarray, index: np.ndarray) -> np.ndarray:
    parts = []
    for start in range(0, len(queries), CHUNK):
        rows = slice(start, start + CHUNK)
        apart = flatten(queries[rows]) - flatten(base[index[rows]])
        parts.append(np.sqrt((apart**2).sum(axis=1)))
    return np.concatenate(parts)
