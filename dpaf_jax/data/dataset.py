"""Prepared data, opened for training: memory maps, checked against the manifest."""

import dataclasses
import pathlib

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.data.manifest import (
    ARRAYS,
    Manifest,
    array_hash,
    check_settings,
    combined,
    damaged,
    read_manifest,
)
from dpaf_jax.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Labelled images, index-addressable and read-only.

    Attributes:
        images: [n, H, W, C] uint8, memory-mapped: what is not touched is not read. Of
            the N records those that are not empty; their number n is private. Rows of a
            table are [n, 1, F, 1] float32, 0 and 1 at the public bounds.
        labels: [n] int32, in 0 .. num_classes - 1.
        index: [n] int64, distinct, in 0 .. N - 1: where each record stands among all N,
            empty ones counted: as listed, or `placed`. Which others are empty does not
            move it.
        test_images: [num_test, H, W, C] uint8, memory-mapped.
        test_labels: [num_test] int32.
        manifest: what they are; private, as the images.
    """

    images: np.ndarray
    labels: np.ndarray
    index: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    manifest: Manifest

    def placed(self, rng: np.random.Generator) -> 'Dataset':
        """The same records at places among all N that secret coins decide.

        The source's order is not independent of who is there: without one picture all
        behind it move up. In places drawn uniformly they do not, in law: with the record
        and without it the others can be given the same ones, and its own is empty.
        """
        places = rng.permutation(self.manifest.num_examples)
        return dataclasses.replace(self, index=places[self.index])


def load(config: DataConfig, directory: pathlib.Path) -> Dataset:
    """Opens what `prepare` has written.

    Args:
        config: the data section of the config.
        directory: as given to `prepare`.

    Returns:
        The data; images are not read yet. Their N is the config's, if it names one.

    Raises:
        UserError: nothing is prepared there, it was prepared with other settings,
            or a file is missing, truncated or not of the manifest's shape.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        remedy = 'Run the prepare stage first'
        raise UserError(str(directory), 'holds no prepared data', remedy)
    check_settings(manifest, config, directory)
    number = config.num_examples or manifest.num_examples
    manifest = dataclasses.replace(manifest, num_examples=number)
    side, dtype = config.shape, np.float32 if config.columns else np.uint8
    train, test = manifest.num_present, manifest.num_test
    return Dataset(
        images=_open(directory, 'train_images.npy', (train, *side), dtype),
        labels=_open(directory, 'train_labels.npy', (train,), np.int32),
        index=_open(directory, 'train_index.npy', (train,), np.int64),
        test_images=_open(directory, 'test_images.npy', (test, *side), dtype),
        test_labels=_open(directory, 'test_labels.npy', (test,), np.int32),
        manifest=manifest,
    )


def check_arrays(data: Dataset, directory: pathlib.Path) -> None:
    """Reads all arrays once, and compares what they are with what `prepare` has written.

    Keys belong to data: with other data under the same keys, the difference of two outputs
    would be free of noise. So this comes before keys are taken.

    Args:
        data: as `load` has opened them.
        directory: as given to `load`; for the message.

    Raises:
        UserError: they have changed since; it names the file, or the directory if it was
            prepared before the manifest had a checksum for each.
    """
    train, test = (data.images, data.labels), (data.test_images, data.test_labels)
    found = dict(zip(ARRAYS, map(_checksum, (*train, *test, data.index)), strict=True))
    if combined(found) == data.manifest.checksum:
        return
    noted = data.manifest.checksums
    changed = [str(directory / n) for n in ARRAYS if noted.get(n, found[n]) != found[n]]
    raise UserError(
        ', '.join(changed or [str(directory)]),
        'has changed since the data were prepared',
        f'Delete {directory} and start again: the images are prepared anew, and the run '
        'goes on if they are the same. Other images need a new workdir, which spends '
        'epsilon anew',
    )


def _checksum(array: np.ndarray) -> str:
    hasher = array_hash(array.shape, array.dtype.str)
    hasher.update(np.ascontiguousarray(array).data)
    return str(hasher.hexdigest())


def _open(
    directory: pathlib.Path, name: str, shape: tuple[int, ...], dtype: type
) -> np.ndarray:
    try:
        array = np.load(directory / name, mmap_mode='r', allow_pickle=False)
    except PermissionError as error:
        raise UserError(
            str(directory / name),
            'cannot be read (permission denied)',
            'Run as the user who prepared the data',
        ) from error
    except (OSError, ValueError, EOFError) as error:
        raise damaged(directory, name) from error
    if array.shape != shape or array.dtype != dtype:
        raise damaged(directory, name)
    return array
