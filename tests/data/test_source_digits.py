"""The embedded digits."""

import numpy as np
import pytest
from sources import make_config, prepared

from dpaf_jax.data.split import hash_split


class TestDigits:
    def test_all_digits_in_full_contrast(self, tmp_path):
        dataset = prepared(make_config(image_size=8), tmp_path)
        assert len(dataset.images) + len(dataset.test_images) == 1797
        assert (dataset.images.min(), dataset.images.max()) == (0, 255)
        assert set(dataset.labels) == set(dataset.test_labels) == set(range(10))

    @pytest.mark.parametrize('channels', [1, 3])
    def test_they_are_enlarged(self, tmp_path, channels):
        config = make_config(image_size=32, channels=channels)
        dataset = prepared(config, tmp_path)
        assert dataset.images.shape[1:] == (32, 32, channels)

    def test_the_split_is_the_hash_of_the_index(self, tmp_path):
        from sklearn.datasets import load_digits

        dataset = prepared(make_config(image_size=8), tmp_path)
        is_test = hash_split(str, 1797, 0.2)
        np.testing.assert_array_equal(dataset.labels, load_digits().target[~is_test])
        np.testing.assert_array_equal(
            dataset.test_labels, load_digits().target[is_test]
        )
