"""Decodes a source once, into arrays that every later run maps into memory."""

import contextlib
import logging
import math
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator

import numpy as np

from dpaf_jax.config import DataConfig, check_channels
from dpaf_jax.data import manifest as manifests
from dpaf_jax.data.checks import check_records, splits
from dpaf_jax.data.decode import decoded
from dpaf_jax.data.groups import one_of_each
from dpaf_jax.data.manifest import Manifest, Settings
from dpaf_jax.data.sources import open_source
from dpaf_jax.data.sources.base import Source, without_labels
from dpaf_jax.data.subset import drawn
from dpaf_jax.runtime.errors import UserError


def prepare(
    config: DataConfig, directory: pathlib.Path, *, labelled: bool = True
) -> Manifest:
    """Decodes the source into `directory`, or finds it there already.

    The directory (mode 0700: it holds private data) gets `train_images.npy` and
    `test_images.npy` ([n, S, S, C] uint8), `train_labels.npy` and `test_labels.npy`
    ([n] int32), `train_index.npy` ([n] int64, see `Dataset`) and `manifest.json`. It is
    written beside its place and then renamed: it is there whole, or not at all. Image
    files are streamed, never all in memory; a table is read whole.

    What has been prepared is recognised by the settings alone: a source whose files
    have changed since is not noticed; delete the directory after such a change.

    Preconditions on private data (every class has training images, labels in
    range) are checked here. That a run passed, or failed, is visible to whoever
    sees its outcome, and is not covered by the privacy guarantee.

    Args:
        config: the data section of the config.
        directory: where the prepared data live; need not exist.
        labelled: False forgets what the source's classes are: all records are of one.

    Returns:
        The manifest.

    Raises:
        UserError: for a source that is missing, malformed or does not fit the
            config; for a directory that was prepared with other settings, holds
            something else, or cannot be written.
    """
    directory = directory.absolute()  # its parent and its name are needed
    found = manifests.read_manifest(directory)
    if found is None:
        with _writing(directory):
            _check_vacant(directory)
        check_channels(config)
        source = _listed(config)
        if not labelled:
            source = without_labels(source)
        is_test = splits(source, config)
        check_records(source, is_test, config)
        found = _prepare(source, is_test, config, directory)
    manifests.check_settings(found, config, directory)
    # At a terminal, for the owner's eyes: a log would tell others of the number of records.
    if sys.stderr.isatty() and config.num_examples > 2 * found.num_examples:
        logging.warning(
            'config.data.num_examples = %d is more than twice the training records of %s. '
            'The guarantee holds, but draws and steps are sized for so many: a public '
            'number nearer to theirs gives better images',
            config.num_examples,
            config.source,
        )
    return found


def num_listed(config: DataConfig) -> int:
    """N as `prepare` finds it, before a picture is decoded: all training records.

    Those that a filter empties count, too.

    Raises:
        UserError: for a source that is missing or malformed.
    """
    try:
        return int(np.sum(~splits(_listed(config), config)))
    except UserError as error:
        raise UserError(
            'config.data.num_examples',
            f'is 0, and no records can be counted: {str(error).rstrip(".")}',
            'Give the number of your images, or a larger public one, or the right source',
        ) from error


def _listed(config: DataConfig) -> Source:
    return drawn(one_of_each(open_source(config), config), config)


def _prepare(
    source: Source, is_test: np.ndarray, config: DataConfig, directory: pathlib.Path
) -> Manifest:
    present = source.is_present
    num_bytes = int(np.sum(present)) * math.prod(config.shape) * _dtype(config).itemsize
    with _writing(directory), _staging(directory, num_bytes) as staging:
        checksums = _write_arrays(source, is_test, config, staging)
        manifest = Manifest(
            source=config.source,
            image_size=config.image_size,
            channels=config.channels,
            num_classes=config.num_classes,
            class_names=source.class_names,
            num_examples=int(np.sum(~is_test)),
            num_present=int(np.sum(~is_test & present)),
            num_test=int(np.sum(is_test & present)),
            checksum=manifests.combined(checksums),
            settings=Settings.of(config),
            checksums=checksums,
        )
        manifests.write_manifest(manifest, staging)
        return _publish(staging, directory, manifest)


@contextlib.contextmanager
def _writing(directory: pathlib.Path) -> Iterator[None]:
    try:
        yield
    # Failures to read the source are UserErrors by now, so this is about writing.
    except OSError as error:
        raise UserError(
            str(directory),
            f'cannot be written ({error.strerror or error}); nothing was left there',
            'Free space there, or give another directory (config.data.cache)',
        ) from error


@contextlib.contextmanager
def _staging(directory: pathlib.Path, num_bytes: int) -> Iterator[pathlib.Path]:
    parent, prefix = directory.parent, f'{directory.name}.unfinished-'
    parent.mkdir(parents=True, exist_ok=True)
    for old in (p for p in parent.iterdir() if p.name.startswith(prefix)):
        logging.warning(
            '%s: left by a preparation that was killed, or one that is still '
            'running. It holds private images: delete it when none is running.',
            old,
        )
    free = shutil.disk_usage(parent).free
    if free < num_bytes:
        raise OSError(f'needs {num_bytes / 1e9:.1f} GB, free: {free / 1e9:.1f} GB')
    staging = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=parent))  # mode 0700
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _publish(
    staging: pathlib.Path, directory: pathlib.Path, manifest: Manifest
) -> Manifest:
    try:
        os.rename(staging, directory)
    except OSError:
        # Another process may have prepared the same data in the meantime.
        other = manifests.read_manifest(directory)
        if other is None:
            raise
        return other
    return manifest


def _check_vacant(directory: pathlib.Path) -> None:
    # Found out now, not after hours of decoding.
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(
            str(directory),
            'is there, but holds no prepared data',
            'Give another directory (config.data.cache), or empty this one',
        )


def _write_arrays(
    source: Source, is_test: np.ndarray, config: DataConfig, staging: pathlib.Path
) -> dict[str, str]:
    """Writes all arrays; returns the checksum of each by its file."""
    shape, dtype = config.shape, _dtype(config).str
    index = np.flatnonzero(source.is_present[~is_test]).astype('<i8')
    all_labels, is_test = source.labels[source.is_present], is_test[source.is_present]
    with contextlib.ExitStack() as stack:
        files = {
            side: stack.enter_context(
                _ArrayFile(
                    staging / f'{name}_images.npy',
                    (int(np.sum(is_test == side)), *shape),
                    dtype,
                )
            )
            for side, name in ((False, 'train'), (True, 'test'))
        }
        for side, pixels in zip(is_test, _records(source, config), strict=True):
            files[bool(side)].append(pixels)
    checksums = {file.name: file.checksum() for file in files.values()}
    small = {'train_index.npy': index}
    for side, name in ((False, 'train'), (True, 'test')):
        small[f'{name}_labels.npy'] = all_labels[is_test == side].astype('<i4')
    for name, array in small.items():
        with _ArrayFile(staging / name, array.shape, array.dtype.str) as file:
            file.append(array)
        checksums[name] = file.checksum()
    return checksums


def _records(source: Source, config: DataConfig) -> Iterator[np.ndarray]:
    """[H, W, C] of every record: decoded pictures, or a table's rows as they are."""
    if not config.columns:
        return decoded(source, config)
    return (np.asarray(row).reshape(config.shape) for row in source.contents())


def _dtype(config: DataConfig) -> np.dtype:
    return np.dtype('<f4' if config.columns else '|u1')


class _ArrayFile:
    """A .npy file written front to back.

    Not through a memory map: there a full disk kills the process by a signal, here
    it raises an OSError.
    """

    def __init__(self, path: pathlib.Path, shape: tuple[int, ...], dtype: str = '|u1'):
        header = {'descr': dtype, 'fortran_order': False, 'shape': shape}
        self.name = path.name
        self._hash = manifests.array_hash(shape, dtype)
        self._file = open(path, 'wb')  # noqa: SIM115 (closed by __exit__)
        np.lib.format.write_array_header_2_0(self._file, header)

    def append(self, values: np.ndarray) -> None:
        data = values.tobytes()
        self._hash.update(data)
        self._file.write(data)

    def checksum(self) -> str:
        digest: str = self._hash.hexdigest()
        return digest

    def __enter__(self) -> '_ArrayFile':
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._file:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
