"""Synthetic images by the labels that a labeller gives them, whatever they were meant for."""

import collections
import logging
from collections.abc import Callable, Iterator

import numpy as np

# (number of the batch, classes meant [B]) -> (images [B, ...], labels given [B])
Draw = Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]
PATIENCE = 20  # batches without a class, then images that were meant to be it are taken
STOCK = 8  # batches' worth of images of one class that are kept for later


def by_label(
    draw: Draw, labels: np.ndarray, meant: np.ndarray, num_classes: int
) -> Iterator[np.ndarray]:
    """Yields images for the labels, in order, in batches.

    An image of class c is a draw from what the generator makes of all classes, given that
    the labeller calls it c. A class that the labeller does not see in `PATIENCE` batches is
    served by the generator's own images of it, with a warning. Classes that are too rare for a
    batch have one such image in each, which counts for nothing else.

    Args:
        draw: makes a batch; always of the same classes, so nothing depends on `labels`.
        labels: [n] int in [0, num_classes).
        meant: [B] int, classes that every batch is made of: by the public prior.
        num_classes: K.
    """
    all_meant = np.concatenate([meant, np.setdiff1d(np.arange(num_classes), meant)])
    ready: list[collections.deque[np.ndarray]]
    ready = [collections.deque(maxlen=STOCK * len(meant)) for _ in range(num_classes)]
    since, number = np.zeros(num_classes, int), 0
    doubted: set[int] = set()
    for start in range(0, len(labels), len(meant)):
        wanted = labels[start : start + len(meant)]
        needed = np.bincount(wanted, minlength=num_classes)
        while any(len(ready[c]) < needed[c] for c in range(num_classes)):
            images, given = draw(number, all_meant)
            number += 1
            seen = np.isin(np.arange(num_classes), given[: len(meant)])
            since = np.where(seen, 0, since + 1)
            for i, (image, own) in enumerate(zip(images, all_meant, strict=True)):
                if since[own] >= PATIENCE:
                    ready[own].append(image)
                elif i < len(meant):
                    ready[given[i]].append(image)
            doubted |= _doubt(since, needed, doubted)
        yield np.stack([ready[label].popleft() for label in wanted])


def _doubt(since: np.ndarray, needed: np.ndarray, before: set[int]) -> set[int]:
    new = set(np.flatnonzero((since >= PATIENCE) & (needed > 0)).tolist()) - before
    if new:
        logging.warning(
            'The labeller sees the classes %s in none of %d batches: images that were '
            'meant to be of them are taken as such.',
            sorted(new),
            PATIENCE,
        )
    return new
