"""The published sanitiser gives training images away, whatever epsilon it claims."""

import numpy as np
import pytest

from experiments.leaks.dpgen import SHOWN, measure, picture, play, recover, sanitised


@pytest.fixture(scope='module')
def records():
    rng = np.random.default_rng(0)
    return rng.integers(256, size=(60, 8, 8, 1)).astype(np.uint8)


@pytest.mark.parametrize('epsilon', [0.2, 10.0])
def test_every_pair_holds_a_training_image_pixel_for_pixel(records, epsilon):
    made = sanitised(records, epsilon, seed=1)
    leak = measure(records, made, epsilon)
    assert leak.exact == 1.0
    assert leak.images > 0.4
    assert leak.own == pytest.approx(0.12 if epsilon < 1 else 1.0, abs=0.12)
    # Half a level beside the truth would not be called a hit.
    shifted = made._replace(noisy=made.noisy + 1.2 / 127.5)
    assert measure(records, shifted, epsilon).exact == 0.0


@pytest.mark.slow
def test_whether_an_image_is_there_is_answered_beyond_the_claimed_epsilon(records):
    bound = play(records[:20], 0.2, 150)
    assert bound > 0.2


def test_the_picture_shows_what_was_recovered(records):
    made = sanitised(records, 1.0, seed=1)
    assert recover(made).dtype == np.uint8
    width, height = picture(records, made).size
    assert width > SHOWN * 8 and height > 3 * 8
