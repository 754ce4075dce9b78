"""Stand-ins for synthetic images are spoilt as they are called."""

import numpy as np

from experiments.fidelity_calibration import (
    blurred,
    class_means,
    loaded,
    repeated,
    shuffled,
    with_noise,
)

IMAGES = np.random.default_rng(0).integers(0, 256, (300, 6, 6, 1), dtype=np.uint8)
LABELS = np.arange(300) % 3


def test_each_is_the_mean_of_its_class():
    made = class_means(IMAGES, LABELS)
    assert made.shape == IMAGES.shape and made.dtype == np.uint8
    for label in range(3):
        mean = IMAGES[label::3].mean(axis=0)
        assert np.abs(made[label::3] - mean).max() <= 0.5


def test_a_hundred_images_come_again_and_again():
    made = repeated(IMAGES, LABELS)
    assert made.shape == IMAGES.shape
    assert np.array_equal(made[100:200], IMAGES[:100])
    assert not np.array_equal(IMAGES[100:200], IMAGES[:100])


def test_noise_is_as_strong_as_it_is_called():
    grey = np.full((300, 6, 6, 1), 128, np.uint8)
    assert abs(with_noise(grey, LABELS).astype(float).std() - 2.6) < 0.1


def test_a_blur_stays_within_its_image():
    point = np.zeros((2, 9, 9, 1), np.uint8)
    point[0, 4, 4] = 255
    made = blurred(point, LABELS)
    assert 0 < made[0, 4, 5, 0] < made[0, 4, 4, 0] < 255 and not made[1].any()


def test_images_keep_their_labels():
    train, test = loaded('digits', 16)
    some = shuffled(train, 50)
    assert some.images.shape == (50, 16, 16, 1) and len(test.images) > 800
    for image, label in zip(some.images, some.labels, strict=True):
        known = (train.images == image).all(axis=(1, 2, 3))
        assert label in train.labels[known]
