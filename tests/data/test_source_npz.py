"""Arrays in one file: what is read, and what is refused by name."""

import io
import pathlib
import zipfile

import numpy as np
import pytest
from sources import make_config, pixels_of, prepared, refused, rows

from dpaf_jax.config import DataConfig


class TestNpz:
    images = np.stack([pixels_of(i) for i in range(12)])
    labels = np.arange(12) % 2

    def save(self, tmp_path: pathlib.Path, compressed=False, **arrays) -> DataConfig:
        path = tmp_path / 'data.npz'
        (np.savez_compressed if compressed else np.savez)(path, **arrays)
        return make_config(
            source=f'npz:{path}',
            image_size=8,
            channels=3,
            num_classes=2,
            test_fraction=0.4,
        )

    @pytest.mark.parametrize('names', ['train_x', 'x_train'])
    @pytest.mark.parametrize('compressed', [False, True])
    def test_both_spellings_with_their_own_test_split(
        self, tmp_path, names, compressed
    ):
        arrays = {
            names: self.images[:8],
            names.replace('x', 'y', 1) if names[0] == 'x' else 'train_y': self.labels[
                :8
            ],
            names.replace('train', 'test'): self.images[8:],
            'y_test' if names[0] == 'x' else 'test_y': self.labels[8:, None],
        }
        dataset = prepared(self.save(tmp_path, compressed, **arrays), tmp_path)
        np.testing.assert_array_equal(dataset.images, self.images[:8])
        np.testing.assert_array_equal(dataset.test_images, self.images[8:])
        np.testing.assert_array_equal(dataset.test_labels, self.labels[8:])

    @pytest.mark.parametrize('keys', [('images', 'labels'), ('train_x', 'train_y')])
    def test_without_a_test_split_the_hash_decides(self, tmp_path, keys):
        arrays = dict(zip(keys, (self.images, self.labels), strict=True))
        dataset = prepared(self.save(tmp_path, **arrays), tmp_path)
        assert rows(dataset.images) | rows(dataset.test_images) == rows(self.images)
        assert len(dataset.images) + len(dataset.test_images) == 12

    @pytest.mark.parametrize('dtype', [np.float16, np.float32, '>f8'])
    def test_floats_are_scaled(self, tmp_path, dtype):
        scaled = (self.images / 255).astype(dtype)
        config = self.save(tmp_path, images=scaled, labels=self.labels)
        dataset = prepared(config, tmp_path)
        assert rows(dataset.images) <= rows(self.images)

    def test_column_order_is_understood(self, tmp_path):
        images = np.asfortranarray(self.images)
        config = self.save(tmp_path, images=images, labels=self.labels)
        assert rows(prepared(config, tmp_path).images) <= rows(self.images)

    @pytest.mark.parametrize('value', [np.nan, np.inf, -0.01, 1.01])
    def test_floats_outside_the_unit_interval(self, tmp_path, value):
        images = self.images / 255
        images[5, 2, 2, 0] = value
        config = self.save(tmp_path, images=images, labels=self.labels)
        refused(config, tmp_path, r'data.npz: images\[5\] has values outside.*NaN')

    @pytest.mark.parametrize(
        'images',
        [
            images.astype(np.int64),
            images.astype(bool),
            images.transpose(0, 3, 1, 2),
            images.reshape(12, -1),
            np.zeros((12, 0, 8), np.uint8),
        ],
        ids=['int64', 'bool', 'channels first', 'flat', 'no pixels'],
    )
    def test_other_dtypes_and_shapes(self, tmp_path, images):
        config = self.save(tmp_path, images=images, labels=self.labels)
        refused(config, tmp_path, r'data.npz: images is .*uint8 \[N, H, W\]')

    def test_images_of_mixed_sizes(self, tmp_path):
        ragged = np.empty(12, object)
        ragged[:] = [pixels_of(i, 8 + i) for i in range(12)]
        config = self.save(tmp_path, images=ragged, labels=self.labels)
        refused(config, tmp_path, 'data.npz: images holds objects.*mixed sizes')

    @pytest.mark.parametrize(
        'keys', [('a', 'b'), ('train_x', 'labels'), ('images', 'labels', 'val_x'), ()]
    )
    def test_unknown_keys(self, tmp_path, keys):
        config = self.save(tmp_path, **dict.fromkeys(keys, self.labels))
        refused(
            config, tmp_path, f'has the keys {", ".join(sorted(keys))}.*Use train_x'
        )

    @pytest.mark.parametrize('labels', [labels[:-1], labels[:, None] * np.ones(2, int)])
    def test_labels_that_do_not_fit(self, tmp_path, labels):
        config = self.save(tmp_path, images=self.images, labels=labels)
        refused(config, tmp_path, 'labels does not fit images')

    def test_labels_that_are_not_integers(self, tmp_path):
        config = self.save(tmp_path, images=self.images, labels=self.labels / 2)
        refused(config, tmp_path, 'labels is float64.*integers')

    def test_a_damaged_archive(self, tmp_path):
        config = self.save(tmp_path, images=self.images, labels=self.labels)
        path = tmp_path / 'data.npz'
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        refused(config, tmp_path, 'data.npz: .*damaged or truncated')
        path.write_bytes(whole[:300] + b'XXX' + whole[303:])
        refused(config, tmp_path, 'data.npz: images is damaged')

    def test_an_array_that_ends_early(self, tmp_path):
        config = self.save(tmp_path, images=self.images, labels=self.labels)
        buffer = io.BytesIO()
        np.save(buffer, self.images)
        with zipfile.ZipFile(tmp_path / 'data.npz', 'w') as archive:
            archive.writestr('images.npy', buffer.getvalue()[:-10])
            buffer = io.BytesIO()
            np.save(buffer, self.labels)
            archive.writestr('labels.npy', buffer.getvalue())
        refused(config, tmp_path, 'data.npz: images is damaged')

    def test_the_real_mnist(self, data_dir, tmp_path):
        config = make_config(source=f'npz:{data_dir}/mnist.npz', image_size=28)
        dataset = prepared(config, tmp_path)
        with np.load(data_dir / 'mnist.npz') as raw:
            np.testing.assert_array_equal(dataset.images[..., 0], raw['train_x'])
            np.testing.assert_array_equal(dataset.test_labels, raw['test_y'])
