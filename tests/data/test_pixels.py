"""From a picture, or an array, to the pixels of a record."""

import io

import numpy as np
import pytest
from PIL import ExifTags, Image
from sources import encode

from dpaf_jax.data.pixels import BadPictureError, to_pixels


def test_the_right_size_is_kept_to_the_bit():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    np.testing.assert_array_equal(to_pixels(pixels, 8, 3), pixels)


@pytest.mark.parametrize('shape', [(8, 12), (12, 8)])
def test_the_centred_square_is_what_remains(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    top, left = (shape[0] - 8) // 2, (shape[1] - 8) // 2
    found = to_pixels(pixels, 8, 1)
    expected = pixels[top : top + 8, left : left + 8]
    np.testing.assert_array_equal(found[..., 0], expected)


def test_reducing_is_antialiased():
    # One-pixel stripes: picking pixels gives 0 or 255, averaging gives grey.
    stripes = np.tile(np.array([0, 255], np.uint8), (32, 16))
    found = to_pixels(stripes, 8, 1)
    assert np.all(np.abs(found[:, 1:-1].astype(int) - 127) < 12)


def test_grey_and_colour_are_converted_both_ways():
    grey = np.full((4, 4), 90, np.uint8)
    np.testing.assert_array_equal(to_pixels(grey, 4, 3), np.full((4, 4, 3), 90))
    red = np.zeros((4, 4, 3), np.uint8)
    red[..., 0] = 255
    assert np.all(to_pixels(red, 4, 1) == 76)  # ITU-R 601: 0.299 x 255


@pytest.mark.parametrize('mode', ['1', 'P', 'L', 'LA', 'RGB', 'RGBA', 'CMYK'])
def test_every_8_bit_mode_is_read(mode, tmp_path):
    path = tmp_path / ('x.tif' if mode == 'CMYK' else 'x.png')
    Image.new('RGB', (6, 6), 'white').convert(mode).save(path)
    for channels in (1, 3):
        pixels = to_pixels(path.read_bytes(), 6, channels)
        assert pixels.shape == (6, 6, channels) and np.all(pixels == 255)


def test_what_cannot_be_seen_is_white():
    pixels = np.full((6, 6, 4), 90, np.uint8)
    pixels[..., 3] = 255
    pixels[:, 3:, 3] = 0  # whatever colour a program has left there
    found = to_pixels(encode(pixels), 6, 3)
    assert np.all(found[:, :3] == 90) and np.all(found[:, 3:] == 255)


def test_16_bit_pictures_are_not_clipped_in_silence(tmp_path):
    path = tmp_path / 'x.png'
    Image.fromarray(np.full((6, 6), 40_000, np.uint16)).save(path)
    with pytest.raises(BadPictureError, match='more than 8 bits'):
        to_pixels(path.read_bytes(), 6, 1)


@pytest.mark.parametrize('suffix', ['png', 'tif'])
def test_a_window_says_what_is_black_and_what_is_white(suffix, tmp_path):
    path = tmp_path / f'x.{suffix}'
    levels = np.array([[0, 1000], [2000, 65535]], np.uint16)
    Image.fromarray(levels).save(path)
    found = to_pixels(path.read_bytes(), 2, 1, window=(1000.0, 3000.0))
    assert found[..., 0].tolist() == [[0, 0], [128, 255]]


@pytest.mark.parametrize('kind', ['P5', 'P2'])
def test_a_window_is_of_the_levels_that_a_pgm_states(kind):
    """Pillow stretches 12 bits to 16: all but the darkest levels would be white."""
    levels = [[0, 1000], [2000, 4095]]
    body = np.array(levels, '>u2').tobytes()
    if kind == 'P2':
        body = b' '.join(b'%d' % level for row in levels for level in row)
    content = f'{kind} 2 2 4095\n'.encode() + body
    found = to_pixels(content, 2, 1, window=(0.0, 4095.0))
    assert found[..., 0].tolist() == [[0, 62], [125, 255]]
    whole = f'{kind} 2 2 255\n'.encode() + (
        b'0 7 9 255' if kind == 'P2' else b'\0\7\x09\xff'
    )
    assert to_pixels(whole, 2, 1)[..., 0].tolist() == [[0, 7], [9, 255]]


def test_padding_keeps_all_of_a_picture_on_black():
    pixels = np.full((4, 8), 200, np.uint8)
    found = to_pixels(encode(pixels), 8, 1, 'pad')[..., 0]
    assert np.all(found[2:6] == 200)
    assert not found[:2].any() and not found[6:].any()
    assert np.all(to_pixels(encode(pixels), 4, 1) == 200)


@pytest.mark.parametrize(
    ('orientation', 'upright'),
    [
        (1, lambda x: x),
        (2, np.fliplr),
        (3, lambda x: np.rot90(x, 2)),
        (6, lambda x: np.rot90(x, -1)),
        (8, np.rot90),
    ],
)
def test_a_picture_is_turned_as_its_camera_was_held(orientation, upright):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12), np.uint8)
    exif, content = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.Orientation] = orientation
    Image.fromarray(pixels).save(content, 'PNG', exif=exif)
    expected = to_pixels(np.ascontiguousarray(upright(pixels)), 8, 1)
    np.testing.assert_array_equal(to_pixels(content.getvalue(), 8, 1), expected)


def test_a_damaged_note_on_orientation_leaves_the_picture_as_it_lies():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, 'PNG', exif=b'Exif\0\0no such header')
    np.testing.assert_array_equal(to_pixels(content.getvalue(), 8, 1)[..., 0], pixels)
