"""Contracts of the pictures: where each image lands, and files that are whole."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from dpaf_jax.release import pictures
from dpaf_jax.runtime import files


def grey(*values: int, side: int = 4) -> np.ndarray:
    """One flat image per value."""
    return np.stack([np.full((side, side, 1), v, np.uint8) for v in values])


def test_rows_are_classes_and_columns_the_first_images_in_order():
    labels = np.array([1, 0, 1, 0, 1])
    grid = pictures.sample_grid(grey(10, 20, 30, 40, 50), labels, 2, 2, scale=3)
    side, gap = 4 * 3, pictures.GAP
    assert grid.mode == 'RGBA'
    assert grid.size == (2 * side + gap, 2 * side + gap)
    corners = [(c * (side + gap), r * (side + gap)) for r in (0, 1) for c in (0, 1)]
    for (x, y), value in zip(corners, (20, 40, 10, 30), strict=True):
        opaque = (value, value, value, 255)
        assert grid.getpixel((x, y)) == opaque
        assert grid.getpixel((x + side - 1, y + side - 1)) == opaque


@pytest.mark.parametrize(
    'shape', [(8, 8, 1), (5, 5, 3), (64, 64, 3), (4, 4, 2), (1, 9, 1)]
)
def test_tiles_are_the_images_that_a_grid_shows(shape):
    images = np.random.default_rng(0).integers(0, 256, (6, *shape), np.uint8)
    labels = np.repeat(np.arange(3), 2)
    grid = pictures.sample_grid(images, labels, 3, 2)
    shown = images if shape[-1] == 3 else images[..., :1]
    found = pictures.tiles(np.asarray(grid), shape, 3, 2)
    np.testing.assert_array_equal(found, shown)


def test_gaps_and_missing_images_are_see_through():
    grid = pictures.sample_grid(grey(200), np.array([1]), 2, 2, scale=1)
    assert grid.getpixel((0, 0))[3] == 0  # class 0 has no image
    assert grid.getpixel((0, 6)) == (200, 200, 200, 255)
    assert grid.getpixel((4, 6))[3] == 0  # the gap
    assert grid.getpixel((6, 6))[3] == 0  # the second place of class 1


def test_enlarging_repeats_pixels():
    image = np.arange(4, dtype=np.uint8).reshape(1, 2, 2, 1)
    grid = pictures.sample_grid(image, np.array([0]), 1, 1, scale=2)
    expected = [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
    np.testing.assert_array_equal(np.asarray(grid)[..., 0], expected)


def test_colour_is_kept_and_other_channel_counts_show_the_first():
    colours = np.zeros((1, 4, 4, 3), np.uint8) + np.array([1, 2, 3], np.uint8)
    grid = pictures.sample_grid(colours, np.array([0]), 1, 1)
    assert grid.getpixel((0, 0)) == (1, 2, 3, 255)
    two = np.zeros((1, 4, 4, 2), np.uint8) + np.array([7, 9], np.uint8)
    grid = pictures.sample_grid(two, np.array([0]), 1, 1)
    assert grid.getpixel((0, 0)) == (7, 7, 7, 255)


@pytest.mark.parametrize('side,tile', [(16, 64), (28, 56), (64, 64), (128, 128)])
def test_default_scale_makes_small_images_visible(side, tile):
    grid = pictures.sample_grid(grey(1, side=side), np.array([0]), 1, 1)
    assert grid.size == (tile, tile)


def test_float_images_are_refused():
    with pytest.raises(ValueError, match='uint8'):
        pictures.sample_grid(grey(1) / 255.0, np.array([0]), 1)
    with pytest.raises(ValueError, match='scale'):
        pictures.sample_grid(grey(1), np.array([0]), 1, scale=0)


def test_png_round_trip_through_file_and_uri(tmp_path):
    grid = pictures.sample_grid(grey(10, 250), np.array([0, 1]), 2)
    pictures.save_png(grid, tmp_path / 'new' / 'grid.png')
    uri = pictures.png_data_uri(grid)
    head, _, body = uri.partition(',')
    assert head == 'data:image/png;base64'
    for source in (tmp_path / 'new' / 'grid.png', io.BytesIO(base64.b64decode(body))):
        with Image.open(source) as read:
            assert read.format == 'PNG'
            np.testing.assert_array_equal(np.asarray(read), np.asarray(grid))


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / 'file'
    files.write_bytes(path, b'old')

    def full_disk(source, target):
        raise OSError('no space left')

    monkeypatch.setattr(files.os, 'replace', full_disk)
    with pytest.raises(OSError, match='no space'):
        files.write_bytes(path, b'new')
    assert path.read_bytes() == b'old'
    assert list(tmp_path.iterdir()) == [path]
