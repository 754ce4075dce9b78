"""npz:<path>: arrays of images and labels in one NumPy archive."""

import functools
import itertools
import pathlib
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.data.sources.attributes import check_attribute
from dpaf_jax.data.sources.base import Source, counting_names, existing
from dpaf_jax.runtime.errors import UserError

# (images, labels) of the training split and of the test split.
_LAYOUTS = (
    (('train_x', 'train_y'), ('test_x', 'test_y')),
    (('x_train', 'y_train'), ('x_test', 'y_test')),
    (('train_x', 'train_y'),),
    (('x_train', 'y_train'),),
    (('images', 'labels'),),
)
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError)
_REMEDY = 'Save it with numpy.savez: uint8 [N, H, W] or [N, H, W, C], C = 1 or 3'


def open_source(path: str, config: DataConfig) -> Source:
    """Lists the records of an archive; images are read from it row by row.

    Keys: train_x, train_y, test_x, test_y (or x_train, ...; or images, labels, or
    no test pair: then the hash split, a record's id is its array and index). Images:
    uint8, or floats in [0, 1], which are scaled to 0 .. 255. Labels: integers, [N]
    or [N, 1].

    Args:
        path: of the .npz file.
        config: the data section of the config.

    Raises:
        UserError: other keys, shapes or dtypes; labels and images of different
            number; a damaged file; later, from `contents`: NaN, inf, or a float
            outside [0, 1].
    """
    check_attribute(config)
    file = existing(path, 'config.data.source')
    keys = _keys(file)
    layout = next((x for x in _LAYOUTS if set(sum(x, ())) == keys), None)
    if layout is None:
        raise UserError(
            str(file),
            f'has the keys {", ".join(sorted(keys))}',
            'Use train_x, train_y, test_x, test_y, or images, labels',
        )
    labels = [_labels(file, *pair) for pair in layout]
    is_test = np.repeat([False, True][: len(layout)], [len(side) for side in labels])
    arrays = [images for images, _ in layout]
    return Source(
        where=str(file),
        class_names=counting_names(config.num_classes),
        labels=np.concatenate(labels),
        record_id=functools.partial(_record_id, arrays, len(labels[0])),
        is_test=is_test if len(layout) == 2 else None,
        contents=lambda: itertools.chain(*(_images(file, name) for name in arrays)),
    )


def _record_id(arrays: list[str], num_train: int, i: int) -> str:
    if i < num_train:
        return f'{arrays[0]}[{i}]'
    return f'{arrays[1]}[{i - num_train}]'


def _keys(file: pathlib.Path) -> set[str]:
    try:
        with zipfile.ZipFile(file) as archive:
            return {name.removesuffix('.npy') for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise _damaged(file, 'not an npz archive, or') from error


def _labels(file: pathlib.Path, images: str, name: str) -> np.ndarray:
    shape, _, dtype = _header(file, images)
    good_shape = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
    if dtype.hasobject:
        problem = f'{images} holds objects, as arrays of mixed sizes do'
        raise UserError(str(file), problem, f'Resize them first. {_REMEDY}')
    if not good_shape or 0 in shape[1:] or (dtype != np.uint8 and dtype.kind != 'f'):
        raise UserError(str(file), f'{images} is {dtype} {list(shape)}', _REMEDY)
    _, _, label_dtype = _header(file, name)
    if label_dtype.kind not in 'iu':
        remedy = 'Save the labels as integers 0 .. num_classes - 1'
        raise UserError(str(file), f'{name} is {label_dtype}', remedy)
    try:
        with np.load(file, allow_pickle=False) as archive:
            labels = archive[name].astype(np.int64)
    except _DAMAGE as error:
        raise _damaged(file, name) from error
    if labels.shape not in ((shape[0],), (shape[0], 1)):
        remedy = 'Save one label an image'
        raise UserError(str(file), f'{name} does not fit {images}', remedy)
    return labels.ravel()


def _header(file: pathlib.Path, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    try:
        with zipfile.ZipFile(file) as archive, archive.open(f'{name}.npy') as member:
            return _read_header(member)
    except _DAMAGE as error:
        raise _damaged(file, name) from error


def _read_header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    if np.lib.format.read_magic(member) == (1, 0):
        return np.lib.format.read_array_header_1_0(member)
    return np.lib.format.read_array_header_2_0(member)


def _images(file: pathlib.Path, name: str) -> Iterator[np.ndarray]:
    try:
        for i, image in enumerate(_rows(file, name)):
            if image.dtype != np.uint8:
                # NaN fails the comparison too.
                if not np.all((image >= 0) & (image <= 1)):
                    problem = f'{name}[{i}] has values outside [0, 1], NaN or inf'
                    remedy = 'Scale it to [0, 1], or save it as uint8'
                    raise UserError(str(file), problem, remedy)
                image = np.rint(image * 255).astype(np.uint8)
            yield image
    except _DAMAGE as error:
        raise _damaged(file, name) from error


def _rows(file: pathlib.Path, name: str) -> Iterator[np.ndarray]:
    with zipfile.ZipFile(file) as archive, archive.open(f'{name}.npy') as member:
        shape, fortran_order, dtype = _read_header(member)
        if fortran_order:  # rows are not contiguous: it has to be read as a whole
            with np.load(file, allow_pickle=False) as whole:
                yield from whole[name]
                return
        size = int(np.prod(shape[1:])) * dtype.itemsize
        for _ in range(shape[0]):
            row = np.frombuffer(member.read(size), dtype)
            yield row.reshape(shape[1:])  # a ValueError where the file ends early


def _damaged(file: pathlib.Path, what: str) -> UserError:
    return UserError(str(file), f'{what} is damaged or truncated', 'Save it again')
