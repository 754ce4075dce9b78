"""Synthetic data sets as files that others read; whole, or not there at all."""

import pathlib
import shutil
import zipfile

import numpy as np
from PIL import Image

from dpaf_jax.errors import UserError
from dpaf_jax.release import Release


def write_npz(path: pathlib.Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Writes `images` and `labels`, under a temporary name first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + '.unfinished')
    with open(temporary, 'wb') as file:
        np.savez(file, images=images, labels=labels)
    temporary.rename(path)


def read_npz(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """What `write_npz` wrote: images and labels; UserError if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays['images'], arrays['labels']
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            str(path), 'is damaged', 'Delete it: it is drawn anew from the release'
        ) from error


def write_folder(
    path: pathlib.Path, release: Release, labels: np.ndarray, seed: int | None
) -> None:
    """Writes train/<label>/<index>.png, image by image; labels sort as numbers do."""
    if path.exists():
        raise UserError(str(path), 'exists', 'Give a folder that is not there yet')
    staging = path.with_name(path.name + '.unfinished')
    shutil.rmtree(staging, ignore_errors=True)
    digits = len(str(release.config.data.num_classes - 1))
    names = [str(k).zfill(digits) for k in range(release.config.data.num_classes)]
    for name in names:
        (staging / 'train' / name).mkdir(parents=True)
    index = 0
    for batch in release.generate(labels, seed):
        for image in batch:
            pixels = image[..., 0] if image.shape[-1] == 1 else image
            folder = staging / 'train' / names[labels[index]]
            Image.fromarray(pixels).save(folder / f'{index:07d}.png')
            index += 1
    staging.rename(path)
