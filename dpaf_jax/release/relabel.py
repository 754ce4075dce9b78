"""Synthetic images by the labels that a labeller gives them, whatever they were meant for."""

import collections
import logging
from collections.abc import Callable, Iterator

import numpy as np

# (number of the batch, classes meant [B]) -> (images [B, ...], labels given [B])
Draw = Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]
# Where in so many batches the labeller gives a class less than this share of the images that
# were meant to be it, those are taken.
PATIENCE, SCARCE = 20, 1 / 50
STOCK = 8  # batches' worth of images of one class that are kept for later


def by_label(
    draw: Draw, labels: np.ndarray, meant: np.ndarray, num_classes: int
) -> Iterator[np.ndarray]:
    """Yields images for the labels, in order, in batches.

    An image of class c is a draw from what the generator makes of all classes, given that
    the labeller calls it c. A class that the labeller hardly sees in `PATIENCE` batches is
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
    least = np.maximum(PATIENCE * SCARCE * np.bincount(meant, minlength=num_classes), 1)
    latest: collections.deque[np.ndarray] = collections.deque(maxlen=PATIENCE)
    number = 0
    doubted: set[int] = set()
    for start in range(0, len(labels), len(meant)):
        wanted = labels[start : start + len(meant)]
        needed = np.bincount(wanted, minlength=num_classes)
        while any(len(ready[c]) < needed[c] for c in range(num_classes)):
            images, given = draw(number, all_meant)
            number += 1
            latest.append(np.bincount(given[: len(meant)], minlength=num_classes))
            seen = np.sum(np.stack(latest), axis=0)
            is_scarce = (len(latest) == PATIENCE) & (seen < least)
            for i, (image, own) in enumerate(zip(images, all_meant, strict=True)):
                if is_scarce[own]:
                    ready[own].append(image)
                elif i < len(meant):
                    ready[given[i]].append(image)
            doubted |= _doubt(is_scarce & (needed > 0), doubted)
        yield np.stack([ready[label].popleft() for label in wanted])


def _doubt(which: np.ndarray, before: set[int]) -> set[int]:
    new = set(np.flatnonzero(which).tolist()) - before
    if new:
        logging.warning(
            'The labeller gives the classes %s less than %.0f %% of the images that were '
            'meant to be of them: those are taken as such.',
            sorted(new),
            100 * SCARCE,
        )
    return new
