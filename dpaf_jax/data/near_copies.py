"""Pictures that are nearly the same: another size, another compression, a slight touch.

Two records of one picture have twice the influence that epsilon is about. Bytes do not show
it; thumbnails do.
"""

from collections.abc import Sequence

import numpy as np
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

SIDE = 9  # of a thumbnail
DRAFT = 12 * SIDE  # a JPEG is decoded no larger than needed for this side
NEAR = 0.03  # distance of two thumbnails, each of mean 0 and length 1, at most
FLAT = 1.0  # grey levels' standard deviation, below which a picture shows nothing
AXES = 10  # that thumbnails differ along the most, to look for neighbours by
MOST = 8  # neighbours that one is compared with: frames of a film have thousands


def thumbnail(picture: Image.Image) -> np.ndarray:
    """A picture as [SIDE, SIDE] uint8 grey levels, means around its cells."""
    picture.draft('L', (DRAFT, DRAFT))
    small = picture.convert('L').resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(small)


def near_copies(thumbnails: Sequence[np.ndarray]) -> list[list[int]]:
    """Groups of two and more that look the same but for brightness and contrast, by place.

    Args:
        thumbnails: n of `thumbnail`.
    """
    if not thumbnails:
        return []
    grey = np.stack(thumbnails).reshape(len(thumbnails), -1).astype(np.float32)
    grey -= np.mean(grey, axis=1, keepdims=True)
    places = np.flatnonzero(np.std(grey, axis=1) > FLAT)
    unit = grey[places] / np.linalg.norm(grey[places], axis=1, keepdims=True)
    pairs = _near(unit)
    shape = len(unit), len(unit)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape)
    label = connected_components(graph, directed=False)[1]
    order = np.argsort(label, kind='stable')
    ends = np.flatnonzero(np.diff(label[order])) + 1
    groups = [places[g].tolist() for g in np.split(order, ends) if len(g) > 1]
    return sorted(groups)


def _near(unit: np.ndarray) -> np.ndarray:
    """[P, 2] pairs of rows at most NEAR apart; of a row with many such, some."""
    if len(unit) < 2:
        return np.zeros((0, 2), int)
    # Along some axes of an orthonormal basis nothing is farther apart than altogether.
    along = unit @ np.linalg.eigh(unit.T @ unit)[1][:, -AXES:]
    number = min(MOST + 1, len(unit))  # the nearest is the row itself
    _, found = KDTree(along).query(along, number, distance_upper_bound=NEAR)
    pairs = np.stack([np.repeat(np.arange(len(unit)), number), found.ravel()], axis=1)
    pairs = pairs[(pairs[:, 1] < len(unit)) & (pairs[:, 0] != pairs[:, 1])]
    apart = np.linalg.norm(unit[pairs[:, 0]] - unit[pairs[:, 1]], axis=1)
    kept: np.ndarray = pairs[apart <= NEAR]
    return kept
