"""Records that no data set needs to hold: extreme, public, made from a seed."""

import math

import numpy as np

from dpaf_jax.config import Config, DataConfig
from dpaf_jax.data import Dataset, Manifest
from dpaf_jax.data.manifest import Settings
from dpaf_jax.training.batch import ClipBatch


def extremes(data: DataConfig, number: int) -> np.ndarray:
    """[number, H, W, C] uint8: stripes, one bright line, noise, almost even greys, ...

    Large contrasts saturate SIN and gradients; even ones make SIN divide by almost
    nothing; the noise is another one each time. Of a table `extreme_rows`.
    """
    if data.columns:
        return extreme_rows(data, number)
    side = data.image_size
    rng = np.random.default_rng(1)
    diagonal = np.indices((side, side)).sum(axis=0)[..., None]
    kinds = [
        255 * (diagonal % 2),
        np.full((side, side, 1), 127),
        255 * (diagonal == 3),
        np.full((side, side, 1), 255),
        127 + (diagonal > side),
        255 * (diagonal // 4 % 2),
        np.zeros((side, side, 1)),
    ]
    images = np.empty((number, side, side, data.channels), np.uint8)
    for i in range(number):
        if i % (len(kinds) + 1) == len(kinds):
            images[i] = rng.integers(256, size=images[i].shape)
        else:
            images[i] = kinds[i % (len(kinds) + 1)]
    return images


def extreme_rows(data: DataConfig, number: int) -> np.ndarray:
    """[number, 1, F, 1] float32 in [0, 1]: at their bounds, in turn or at random."""
    rng, place = np.random.default_rng(1), np.arange(data.shape[1])
    kinds = [place % 2, place >= 0, place < 0, place == 0, 1 - place % 2]
    rows = [
        kinds[i % 6] if i % 6 < len(kinds) else rng.integers(2, size=place.shape)
        for i in range(number)
    ]
    return np.array(rows, np.float32).reshape(number, *data.shape)


def noise_images(data: DataConfig, number: int, seed: int) -> np.ndarray:
    """[number, H, W, C] uint8 of independent pixels, each image with its own contrast.

    Of a table: float32 values in [0, 1], the same way.
    """
    rng = np.random.default_rng(seed)
    depth = rng.uniform(0.2, 1.0, (number, 1, 1, 1))
    values = depth * rng.random((number, *data.shape))
    return (
        values.astype(np.float32) if data.columns else (255 * values).astype(np.uint8)
    )


def batch(images: np.ndarray, data: DataConfig, shape: tuple[int, int]) -> ClipBatch:
    """A batch [U, M] of the images in order, labels in turn; all of them present."""
    index = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    return ClipBatch(
        images.reshape(*shape, *images.shape[1:]),
        index % data.num_classes,
        np.zeros(shape, bool),
        index,
    )


def nearly_alike(data: DataConfig, number: int) -> ClipBatch:
    """Singletons, all black and of one class but the last: what it does to them adds up."""
    images = np.zeros((number, *data.shape), np.float32 if data.columns else np.uint8)
    images[-1] = 1 if data.columns else 255
    made = batch(images, data, (number, 1))
    labels = np.zeros_like(made.labels)
    labels[-1] = data.num_classes - 1
    return made._replace(labels=labels)


def dataset(config: Config, images: np.ndarray, labels: np.ndarray) -> Dataset:
    """Made-up images as a data set that phases can read."""
    data = config.data
    manifest = Manifest(
        source='canaries',
        image_size=data.image_size,
        channels=data.channels,
        num_classes=data.num_classes,
        class_names=tuple(map(str, range(data.num_classes))),
        num_examples=len(images),
        num_present=len(images),
        num_test=0,
        checksum='',
        settings=Settings.of(data),
    )
    index = np.arange(len(images))
    return Dataset(images, labels, index, images[:0], labels[:0], manifest)
