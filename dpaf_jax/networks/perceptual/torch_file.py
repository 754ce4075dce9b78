"""Reads the tensors of a file that torch saved, and executes nothing of it.

A torch file is a pickle, which may call whatever it names. Here it may name four things,
and all of them are functions of this module. The layout is the one from before torch 1.6:
a magic number, a version, the machine's sizes, the tensors' description, the names of their
storages in the order in which their content follows.
"""

import collections
import io
import math
import pickle
import struct
from typing import Any, NamedTuple, NoReturn

import numpy as np

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001  # torch/serialization.py


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
        content: of the file, in torch's layout from before 1.6.

    Returns:
        Arrays of float32 or int64.

    Raises:
        ValueError: it is not such a file, is cut off, or names anything but tensors of
            these two kinds.
    """
    file = io.BytesIO(content)
    try:
        head = [_Restricted(file).load() for _ in range(3)]
        if head[:2] != [MAGIC, VERSION] or not head[2].get('little_endian'):
            raise ValueError('the head is not of a torch file')
        described = _Restricted(file).load()
        order = _Restricted(file).load()
        dtypes = {t.storage: t.dtype for t in described.values()}
        storages = {name: _storage(file, dtypes[name]) for name in order}
        return {name: _array(t, storages[t.storage]) for name, t in described.items()}
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, struct.error,
            AttributeError) as error:  # fmt: skip
        raise ValueError(f'no plain torch file of tensors: {error}') from error


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
        size and tensor.offset + last >= len(storage)
    ):
        _cut_off()
    strides = [s * storage.itemsize for s in tensor.strides]
    view = np.lib.stride_tricks.as_strided(
        storage[tensor.offset :], tensor.shape, strides, writeable=False
    )
    return np.array(view)


def _cut_off() -> NoReturn:
    raise ValueError('a tensor goes beyond the end of the file')
