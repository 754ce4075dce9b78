"""From draws to images on the devices.

The data set lies whole on every device where it fits: then only indices travel. Where
it does not, the images of a window are gathered on the host and sent with it, while the
device still computes the window before. Either way the same records reach the same step.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.runtime import parallel, processes
from dpaf_jax.training.batch import Units
from dpaf_jax.training.run import Run

FILL = {'indices': 0, 'is_padding_example': True}
SHARE = 0.4  # of a device's memory that the images may take
CHUNK = 1024  # images per device and call where a query reads the whole data set


class Feed:
    """Deals draws to devices and finds their images.

    Args:
        run: its data and devices.
        features: a function of each image alone, [n, H, W, C] to [n, h, w, c]. Where its
            values fit on the devices, they are computed once and stand for the images.

    Attributes:
        data: what a compiled step gets besides the draws; empty where images are sent.
    """

    def __init__(
        self, run: Run, features: Callable[[jax.Array], jax.Array] | None = None
    ):
        self._run = run
        self.data: dict[str, jax.Array] = {}
        room = SHARE * device_memory(run.devices[parallel.mine(run.devices)])
        images = run.data.images
        if features and processes.from_first(
            lambda: features_size(run, features) <= room
        ):
            images = every_feature(run, features)
        if processes.from_first(lambda: images.nbytes <= room):
            host = {'images': images, 'labels': run.data.labels}
            self.data = parallel.replicate(host, run.devices)

    def deal(self, draws: list[Draw]) -> dict[str, np.ndarray]:
        """Stacks draws [W, U, M] and deals their units to the devices: [D, W, U / D, M].

        Only this process's rows of it are made, and only their images are read.

        Args:
            draws: one per step of a window, all of one shape.

        Returns:
            'indices' and 'is_padding_example'; also 'images' and 'labels' where the data
            do not lie on the devices.
        """
        number, mine = len(self._run.devices), parallel.mine(self._run.devices)
        dealt = {
            field: parallel.deal(
                np.stack([getattr(draw, field) for draw in draws]), number, 1, fill
            )[mine]
            for field, fill in FILL.items()
        }
        if not self.data:
            dealt['images'] = self._run.data.images[dealt['indices']]
            dealt['labels'] = self._run.data.labels[dealt['indices']]
        return dealt

    def deal_one(self, draw: Draw) -> dict[str, np.ndarray]:
        """As `deal`, for a single step: [D, U / D, M]."""
        return {name: value[:, 0] for name, value in self.deal([draw]).items()}


def gather(data: Mapping[str, Any], draw: Mapping[str, Any]) -> Units:
    """The units of a draw, inside a compiled step.

    Args:
        data: a feed's.
        draw: one device's part of what the feed has dealt.
    """
    source = draw
    if data:
        source = {name: value[draw['indices']] for name, value in data.items()}
    return Units(source['images'], source['labels'], draw['is_padding_example'])


def every_record(run: Run, present: np.ndarray | None = None) -> Iterator[Units]:
    """The whole data set once, in chunks of one shape, dealt to the devices.

    Each process reads what its own devices get.

    Args:
        run: its data and devices.
        present: [n] bool, records that take part; default: all of them.

    Yields:
        Singletons with a device axis in front; padded slots point at the first record.
    """
    images, labels = run.data.images, run.data.labels
    number, mine = len(run.devices), parallel.mine(run.devices)
    for start in range(0, len(labels), CHUNK * number):
        index = np.arange(start, start + CHUNK * number)
        absent = index >= len(labels)
        index = np.where(absent, 0, index)
        if present is not None:
            absent = absent | ~present[index]
        own = index.reshape(number, -1, 1)[mine]
        yield Units(images[own], labels[own], absent.reshape(number, -1, 1)[mine])


def every_feature(run: Run, features: Callable[[jax.Array], jax.Array]) -> np.ndarray:
    """[n, h, w, c]: `features` of all images, in this process's memory.

    Each process computes all: their devices draw from all records.
    """
    images = run.data.images
    one = jax.eval_shape(features, images[:1])
    made = np.empty((len(images), *one.shape[1:]), one.dtype)
    compiled = jax.jit(features)
    for start in range(0, len(images), CHUNK):
        chunk = np.asarray(images[start : start + CHUNK])
        missing = [(0, CHUNK - len(chunk))] + [(0, 0)] * (chunk.ndim - 1)
        rows = compiled(np.pad(chunk, missing))
        made[start : start + CHUNK] = np.asarray(rows)[: len(chunk)]
    return made


def features_size(run: Run, features: Callable[[jax.Array], jax.Array]) -> int:
    """Bytes that the features of all images take, and as much for what reads them."""
    one = jax.eval_shape(features, run.data.images[:1])
    return 2 * len(run.data.images) * math.prod(one.shape) * one.dtype.itemsize


def device_memory(devices: Any) -> float:
    """Bytes on one device; virtual CPU devices share what the machine has."""
    stats = devices[0].memory_stats() or {}
    if 'bytes_limit' in stats:
        return float(stats['bytes_limit'])
    machine = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    return machine / len(devices)
