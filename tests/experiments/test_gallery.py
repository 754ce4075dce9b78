"""The README's picture shows what releases make, as it comes, and what they certify."""

import numpy as np
import pytest
import tiny_releases
from PIL import ImageFont

from experiments.gallery import FONT, SIDE, columns, panel, shown, side_by_side


def test_columns_show_each_class_equally_often():
    assert columns(10).tolist() == list(range(10))
    assert columns(2).tolist() == [0] * 4 + [1] * 4
    assert columns(3).tolist() == [0] * 3 + [1] * 3 + [2] * 3


def test_images_lie_row_by_row():
    images = np.zeros((4, 2, 2, 1), np.uint8)
    images[1] = 200  # right of the first, above the fourth
    pixels = np.asarray(panel(images, side=100))
    assert (pixels[10:40, 60:90] == 200).all()
    assert (pixels[10:40, 10:40] == 0).all() and (pixels[60:90, 60:90] == 0).all()


def test_a_certified_release_is_shown_with_its_epsilon(tmp_path):
    picture, statement = shown(tiny_releases.write('one shot', tmp_path / 'a'), 0)
    assert statement == 'certified ε = 1'
    width, height = side_by_side([(picture, 'a', statement)] * 2).size
    assert width > 2 * SIDE and height > SIDE


def test_what_is_not_certified_says_so(tmp_path):
    _, statement = shown(tiny_releases.write('as published', tmp_path / 'a'), 0)
    assert statement == 'no epsilon certified'


@pytest.mark.parametrize('letter', ['ε', '×'])
def test_captions_have_every_letter(letter):
    font = ImageFont.truetype(FONT, 20)
    unknown = font.getmask('\U0010ffff')
    assert bytes(font.getmask(letter)) != bytes(unknown)
