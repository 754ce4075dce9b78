"""Reads the tensors of a file that torch saved, and executes nothing of it.

A torch file is a pickle, which may call whatever it names. Here it may name four things,
and none of them does more than build a tuple, a dictionary or a type.

There are two layouts. Before torch 1.6: a magic number, a version, the machine's sizes, the
tensors' description, the names of their storages in the order in which their content follows.
Since then: a ZIP archive without compression, with the description as `data.pkl` and each
storage as a file of its own under `data/`.
"""

import collections
import io
import math
import pickle
import struct
import zipfile
from typing import Any, NamedTuple, NoReturn

import numpy as np

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001  # torch/serialization.py
ZIP = b'PK\x03\x04'  # how an archive begins
DESCRIPTION, ORDER = 'data.pkl', 'byteorder'  # the latter since torch 2.0


class _Tensor(NamedTuple):
    """Where a tensor's numbers stand."""

    storage: str
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_tensors(content: bytes) -> dict[str, np.ndarray]:
    """The tensors of a saved `state_dict`, by name.

    Args:
        content: of the file, in either of torch's layouts.

    Returns:
        Arrays of float32 or int64.

    Raises:
        ValueError: it is not such a file, is cut off, or names anything but tensors of
            these two kinds.
    """
    try:
        read = _of_archive if content.startswith(ZIP) else _of_sequence
        described, storages = read(io.BytesIO(content))
        return {name: _array(t, storages[t.storage]) for name, t in described.items()}
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, struct.error,
            AttributeError, RuntimeError, zipfile.BadZipFile) as error:  # fmt: skip
        raise ValueError(f'no plain torch file of tensors: {error}') from error


def _of_sequence(file: io.BytesIO) -> tuple[dict[str, _Tensor], dict[str, np.ndarray]]:
    head = [_Restricted(file).load() for _ in range(3)]
    if head[:2] != [MAGIC, VERSION] or not head[2].get('little_endian'):
        raise ValueError('the head is not of a torch file')
    described = _Restricted(file).load()
    order = _Restricted(file).load()
    dtypes = {t.storage: t.dtype for t in described.values()}
    return described, {name: _storage(file, dtypes[name]) for name in order}


def _of_archive(file: io.BytesIO) -> tuple[dict[str, _Tensor], dict[str, np.ndarray]]:
    with zipfile.ZipFile(file) as archive:
        folder = archive.namelist()[0].partition('/')[0]

        def stored(name: str) -> bytes:
            info = archive.getinfo(f'{folder}/{name}')
            if info.compress_type != zipfile.ZIP_STORED:
                raise ValueError('the archive is compressed, as torch has none')
            return archive.read(info)

        if f'{folder}/{ORDER}' in archive.namelist() and stored(ORDER) != b'little':
            raise ValueError('its numbers are not little-endian')
        described = _Restricted(io.BytesIO(stored(DESCRIPTION))).load()
        dtypes = {t.storage: t.dtype for t in described.values()}
        return described, {
            name: np.frombuffer(stored(f'data/{name}'), dtype)
            for name, dtype in dtypes.items()
        }


class _Restricted(pickle.Unpickler):
    """Knows the names that tensors need, each as something inert."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f'names {module}.{name}') from None

    def persistent_load(self, pid: Any) -> tuple[str, np.dtype]:
        _, dtype, storage, *_ = pid
        return storage, dtype


def _tensor(
    storage: tuple[str, np.dtype],
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *_: object,
) -> _Tensor:
    return _Tensor(*storage, offset, shape, strides)


_NAMES = {
    ('collections', 'OrderedDict'): collections.OrderedDict,
    ('torch._utils', '_rebuild_tensor_v2'): _tensor,
    ('torch', 'FloatStorage'): np.dtype('<f4'),
    ('torch', 'LongStorage'): np.dtype('<i8'),
}


def _storage(file: io.BytesIO, dtype: np.dtype) -> np.ndarray:
    (number,) = struct.unpack('<q', file.read(8))
    content = file.read(number * dtype.itemsize)
    if number < 0 or len(content) < number * dtype.itemsize:
        _cut_off()
    return np.frombuffer(content, dtype)


def _array(tensor: _Tensor, storage: np.ndarray) -> np.ndarray:
    size = math.prod(tensor.shape)
    last = sum(s * (n - 1) for s, n in zip(tensor.strides, tensor.shape, strict=True))
    if min((tensor.offset, *tensor.strides)) < 0 or (
        size and max(tensor.offset + last, size - 1) >= len(storage)
    ):
        _cut_off()
    strides = [s * storage.itemsize for s in tensor.strides]
    view = np.lib.stride_tricks.as_strided(
        storage[tensor.offset :], tensor.shape, strides, writeable=False
    )
    return np.array(view)


def _cut_off() -> NoReturn:
    raise ValueError('a tensor goes beyond the end of the file')
