"""Distances between many images, or rows of a table, in chunks."""

from typing import NamedTuple, Protocol

import numpy as np
from sklearn.metrics import pairwise_distances_argmin_min

CHUNK = 2048  # images that are unpacked at once, on either side
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


class Sliceable(Protocol):
    """What `nearest` needs of many images."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def __getitem__(self, part: slice, /) -> np.ndarray:
        """Some of them."""
        ...


def nearest(queries: np.ndarray, base: Sliceable) -> Nearest:
    """The nearest base image of every query, by pixels.

    Args:
        queries: [n, H, W, C] uint8, or rows [n, 1, F, 1] float32 in [0, 1].
        base: [m, H, W, C] of the same kind, m at least 1; only slices of it are read.

    Returns:
        Distances, exact to about 1e-6, and indices.
    """
    best = np.full(len(queries), np.inf, np.float32)
    place = np.zeros(len(queries), np.int64)
    for column in range(0, len(base), CHUNK):
        block = flatten(base[column : column + CHUNK])
        for row in range(0, len(queries), CHUNK):
            rows = slice(row, row + CHUNK)
            here, distance = pairwise_distances_argmin_min(
                flatten(queries[rows]), block
            )
            closer = distance < best[rows]
            place[rows] = np.where(closer, column + here, place[rows])
            best[rows] = np.where(closer, distance, best[rows])
    return Nearest(best, place)
