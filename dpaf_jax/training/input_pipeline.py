"""From draws to images on the devices.

The data set lies whole on every device where it fits: then only indices travel. Where
it does not, the images of a window are gathered on the host and sent with it, while the
device still computes the window before. Either way the same records reach the same step.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from dpaf_jax.data import Dataset
from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.privacy.sampling import Draw, poisson_draw
from dpaf_jax.runtime import parallel, processes
from dpaf_jax.runtime.files import read_json, write_json
from dpaf_jax.runtime.memory import machine_memory
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run
from dpaf_jax.training.workdir import Workdir

FILL = {'indices': 0, 'is_padding_example': True}
SHARE = 0.4  # of a device's memory that the images may take
# Images of 32 x 32 per device and call where the whole data set is read: `at_once`.
CHUNK, CHUNK_SIDE = 1024, 32

Features = Callable[[Any, jax.Array], jax.Array]


class Feed:
    """Deals draws to devices and finds their images.

    What is decided here, and every shape, follows from the public N: records that are
    empty have rows of zeros behind those that are not. Nothing is read or sent before the
    first draw: a phase that has ended needs no data.

    Args:
        run: its data and devices.
        features: a function of each image alone, given `params`: [n, H, W, C] to
            [n, h, w, c]. Where its values fit on the devices, they are computed once and
            stand for the images.
        params: public or noised; they stay as they are while this feed is used.

    """

    def __init__(self, run: Run, features: Features | None = None, params: Any = None):
        self._run, self._features, self._params = run, features, params

    @functools.cached_property
    def _records(self) -> dict[str, np.ndarray]:
        run, features, params = self._run, self._features, self._params
        found = records(run.data)
        if features and _fits(run, features_size(run, features, params)):
            found['images'] = every_feature(run, features, params)
        return found

    @functools.cached_property
    def data(self) -> dict[str, jax.Array]:
        """What a compiled step gets besides the draws; empty where images are sent."""
        run, number = self._run, self._run.data.manifest.num_examples
        if not _fits(run, number * self._records['images'][:1].nbytes):
            return {}
        host = {name: _up_to(rows, number) for name, rows in self._records.items()}
        return parallel.replicate(host, run.devices)

    def deal(self, draws: list[Draw]) -> dict[str, np.ndarray]:
        """Stacks draws [W, U, M] and deals their units to the devices: [D, W, U / D, M].

        Only this process's rows are kept, and only their images are read.

        Args:
            draws: one per step of a window, all of one shape.

        Returns:
            'indices' and 'is_padding_example'; also 'images', 'labels' and 'index' where
            the data do not lie on the devices.
        """
        number, mine = len(self._run.devices), parallel.mine(self._run.devices)
        dealt = {
            field: parallel.deal(
                np.stack([getattr(draw, field) for draw in draws]), number, 1, fill
            )[mine]
            for field, fill in FILL.items()
        }
        if not self.data:
            at = dealt['indices']
            dealt |= {name: rows[at] for name, rows in self._records.items()}
        return dealt

    def deal_one(self, draw: Draw, **numbers: np.ndarray) -> dict[str, np.ndarray]:
        """As `deal`, for a single step: [D, U / D, M].

        Args:
            draw: of this step.
            numbers: more that is private and [U], by name: dealt likewise, [D, U / D].
        """
        devices = self._run.devices
        mine, number = parallel.mine(devices), len(devices)
        dealt = {name: value[:, 0] for name, value in self.deal([draw]).items()}
        return dealt | {
            name: parallel.deal(each, number, 0, 0)[mine]
            for name, each in numbers.items()
        }


def _fits(run: Run, size: int) -> bool:
    """Whether so many bytes have room on the devices, as this run found it first.

    It chooses between two programs, which may round otherwise. So what was found stays,
    also where a killed run goes on with more memory: as long as its keys are the same.

    Args:
        run: its devices, keys and folder.
        size: follows from N and the config.
    """

    def decide() -> bool:
        path, keys = Workdir(run.workdir).placement, run.keys.fingerprint
        found = read_json(path) or {}
        own = found.setdefault(keys, {})
        room = SHARE * device_memory(run.devices[parallel.mine(run.devices)])
        fits: bool = own.setdefault(str(size), bool(size <= room))
        if path.parent.is_dir():
            write_json(path, found)
        return fits

    return processes.from_first(decide)


def records(data: Dataset) -> dict[str, np.ndarray]:
    """What a draw's indices point into, [n, ...] each: the records that are not empty."""
    index = data.index.astype(np.int32)
    return {'images': data.images, 'labels': data.labels, 'index': index}


def _up_to(rows: np.ndarray, number: int) -> np.ndarray:
    """[number, ...]: rows of zeros behind what there is."""
    missing = number - len(rows)
    if missing <= 0:
        return rows
    return np.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))


def gather(data: Mapping[str, Any], draw: Mapping[str, Any]) -> ClipBatch:
    """The units of a draw, inside a compiled step.

    Args:
        data: a feed's.
        draw: one device's part of what the feed has dealt.
    """
    found = draw
    if data:
        found = {name: value[draw['indices']] for name, value in data.items()}
    return ClipBatch(
        found['images'], found['labels'], draw['is_padding_example'], found['index']
    )


def poisson_records(
    run: Run, mechanism: Mechanism, step: int, eligible: np.ndarray | None = None
) -> Draw:
    """A Poisson draw among all records, or among those whose turn it is.

    The plan's N may count empty records; drawn or not, they add nothing.
    """
    present = len(run.data.labels) if eligible is None else eligible
    return poisson_draw(mechanism, present, run.keys, step)


def empty_sums(run: Run, mechanism: Mechanism, shape: tuple[int, ...]) -> jax.Array:
    """Zeros [D, *shape], on the mechanism's grid where it has one: before any record."""
    grid = mechanism.grid
    nothing = grid.nothing(shape) if grid else np.zeros(shape, np.float32)
    return parallel.replicate(nothing, run.devices)


def sums_of_all(
    run: Run,
    mechanism: Mechanism,
    shape: tuple[int, ...],
    add: Callable[[Any, ClipBatch], Any],
    present: np.ndarray | None = None,
) -> Any:
    """One pass over all records; each device's sums, without noise.

    Args:
        run: its data and devices.
        mechanism: whose query `add` asks.
        shape: of the sums.
        add: (sums, records) -> sums, compiled for all devices.
        present: see `every_record`.

    Raises:
        ValueError: the mechanism is charged for a sample, and nobody was left out.
    """
    if present is None and mechanism.sampling_prob < 1:
        q = mechanism.sampling_prob
        raise ValueError(
            f'{mechanism.name} sums all records, but is charged at q = {q}'
        )
    sums = empty_sums(run, mechanism, shape)
    for chunk in every_record(run, present):
        sums = add(sums, chunk)
    return sums


def at_once(images: np.ndarray) -> int:
    """How many images a device reads in a call: of larger ones fewer, for their memory."""
    pixels = images.shape[1] * images.shape[2]
    return max(1, CHUNK * CHUNK_SIDE**2 // max(CHUNK_SIDE**2, pixels))


def every_record(run: Run, present: np.ndarray | None = None) -> Iterator[ClipBatch]:
    """All N records once, in chunks of one shape, dealt to the devices.

    Each process reads what its own devices get. A record's slot is its index: neither the
    number of chunks nor the slot of any other record depends on which of them are empty.

    Args:
        run: its data and devices.
        present: [n] bool, records that take part; default: all of them.

    Yields:
        Singletons with a device axis in front; padded slots point at the first record.
    """
    data, total = run.data, run.data.manifest.num_examples
    number, mine = len(run.devices), parallel.mine(run.devices)
    place, absent = _places(data)
    if present is not None:
        absent[data.index] = ~present
    size = at_once(data.images) * number
    for start in range(0, total, size):
        run.stop.check_within_window()
        index = np.arange(start, start + size)
        outside = index >= total
        index = np.where(outside, 0, index)
        own = place[index].reshape(number, -1, 1)[mine]
        blank = (outside | absent[index]).reshape(number, -1, 1)[mine]
        yield ClipBatch(
            data.images[own],
            data.labels[own],
            blank,
            index.astype(np.int32).reshape(number, -1, 1)[mine],
        )


def _places(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Of all N records: the row that each has in the arrays, and whether it is empty."""
    total = data.manifest.num_examples
    place, absent = np.zeros(total, np.int64), np.ones(total, bool)
    place[data.index], absent[data.index] = np.arange(len(data.index)), False
    return place, absent


def every_feature(run: Run, features: Features, params: Any) -> np.ndarray:
    """[n, h, w, c]: `features` of the records that are not empty, in this process's memory.

    Each process computes all: their devices draw from all records. A record's slot is its
    index, as in `every_record`; where it is empty there is a black image.
    """
    data, total = run.data, run.data.manifest.num_examples
    one = jax.eval_shape(features, params, data.images[:1])
    made = np.empty((len(data.images), *one.shape[1:]), one.dtype)
    compiled, (place, absent) = jax.jit(features), _places(data)
    size = at_once(data.images)
    for start in range(0, total, size):
        run.stop.check_within_window()
        (slots,) = np.nonzero(~absent[start : start + size])
        rows = place[start + slots]
        chunk = np.zeros((size, *data.images.shape[1:]), data.images.dtype)
        chunk[slots] = data.images[rows]
        made[rows] = np.asarray(compiled(params, chunk))[slots]
    return made


def features_size(run: Run, features: Features, params: Any) -> int:
    """Bytes that the features of N images take, and as much for what reads them."""
    one = jax.eval_shape(features, params, run.data.images[:1])
    number = run.data.manifest.num_examples
    return 2 * number * math.prod(one.shape) * one.dtype.itemsize


def device_memory(devices: Any) -> float:
    """Bytes on one device; virtual CPU devices share what the machine has."""
    stats = devices[0].memory_stats() or {}
    if 'bytes_limit' in stats:
        return float(stats['bytes_limit'])
    return machine_memory() / len(devices)
