"""Synthetic data sets as files that others read; whole, or not there at all."""

import csv
import itertools
import math
import pathlib
import zipfile

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.release.drawing import Release
from dpaf_jax.release.pictures import picture
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import written_whole
from dpaf_jax.runtime.progress import ProgressFn

DIGITS = 8  # of a column's range: a float32 between its bounds has no more


def write_npz(path: pathlib.Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Writes `images` and `labels`."""
    with written_whole(path) as temporary, temporary.open('wb') as file:
        np.savez(file, images=images, labels=labels)


def read_npz(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """What `write_npz` wrote: images and labels; UserError if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays['images'], arrays['labels']
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            str(path), 'is damaged', 'Delete it: it is drawn anew from the release'
        ) from error


def write_csv(
    path: pathlib.Path, data: DataConfig, rows: np.ndarray, labels: np.ndarray
) -> None:
    """Writes a table's rows in the units of its columns, and the label last.

    Args:
        path: of the file.
        data: names and bounds of the columns.
        rows: [N, 1, F, 1] float32, 0 and 1 at the bounds.
        labels: [N] integers.
    """
    values = in_units(data, rows)
    with (
        written_whole(path) as temporary,
        temporary.open('w', newline='', encoding='utf-8') as file,
    ):
        writer = csv.writer(file)
        writer.writerow([*(column.name for column in data.table), data.label])
        for row, label in zip(values.tolist(), labels.tolist(), strict=True):
            writer.writerow([*(f'{value:.15g}' for value in row), label])


def in_units(data: DataConfig, rows: np.ndarray) -> np.ndarray:
    """Rows [N, 1, F, 1], 0 and 1 at the bounds, in the units of their columns.

    Returns:
        [N, F] float64 within the bounds, with as many digits as tell ten million values
        between them apart: no more are in the float32 that a generator makes.
    """
    low = np.array([column.low for column in data.table], np.float64)
    high = np.array([column.high for column in data.table], np.float64)
    values = low + (high - low) * rows.reshape(len(rows), -1).astype(np.float64)
    for i, span in enumerate(high - low):
        values[:, i] = np.round(values[:, i], DIGITS - math.ceil(math.log10(span)))
    made: np.ndarray = np.clip(values, low, high)
    return made


def write_folder(
    path: pathlib.Path,
    release: Release,
    labels: np.ndarray,
    seed: int | None,
    on_progress: ProgressFn = lambda num: None,
) -> None:
    """Writes train/<class>/<index>.png, image by image.

    Classes are named as the release names them. Whoever reads the folder numbers classes by
    their sorted names: names in another order have their label in front.
    """
    if path.exists():
        raise UserError(str(path), 'exists', 'Give a folder that is not there yet')
    data = release.config.data
    digits, names = len(str(data.num_classes - 1)), list(data.names)
    if not data.class_names:
        names = [name.zfill(digits) for name in names]
    elif names != sorted(names):
        names = [f'{label:0{digits}d}_{name}' for label, name in enumerate(names)]
    with written_whole(path) as staging:
        for name in names:
            (staging / 'train' / name).mkdir(parents=True)
        images = itertools.chain.from_iterable(
            release.generate(labels, seed, on_progress)
        )
        for index, (image, label) in enumerate(zip(images, labels, strict=True)):
            folder = staging / 'train' / names[label]
            picture(image).save(folder / f'{index:07d}.png')
