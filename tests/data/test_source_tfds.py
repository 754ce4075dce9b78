"""TFDS: a data set prepared here is read without TensorFlow."""

import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sources import encode, make_config, pixels_of, prepared, refused, rows

from dpaf_jax import data
from dpaf_jax.config import DataConfig
from dpaf_jax.runtime.errors import UserError


@pytest.fixture(scope='session')
def tfds_dir(tmp_path_factory) -> pathlib.Path:
    """Prepared data sets: tiny_pets, tiny_faces (CelebA's attributes), tiny_numbers."""
    tfds = pytest.importorskip('tensorflow_datasets')
    features = tfds.features
    kinds = {
        'label': features.ClassLabel(names=['cat', 'dog']),
        'number': features.Scalar(np.int64),
        'attributes': {
            name: features.Scalar(np.bool_)
            for name in ('Male', 'Black_Hair', 'Blond_Hair', 'Brown_Hair')
        },
    }

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version('1.0.0')
        pkg_dir_path = pathlib.Path(__file__).parent

        def _info(self):
            spec = {
                'image': features.Image(shape=(8, 8, 3)),
                self.kind: kinds[self.kind],
            }
            return tfds.core.DatasetInfo(
                builder=self,
                features=features.FeaturesDict(spec),
                disable_shuffling=True,
            )

        def _split_generators(self, dl_manager):
            return {side: self._generate_examples(side) for side in self.sides}

        def _generate_examples(self, side) -> Iterator[tuple[int, dict[str, Any]]]:
            for i in range(24 if side == 'train' else 6):
                value: Any = i % 2
                if self.kind == 'attributes':
                    hair = {'Black_Hair': i % 4 in (0, 3), 'Blond_Hair': i % 4 == 1}
                    value = {'Male': i % 2 == 1, **hair, 'Brown_Hair': i % 4 >= 2}
                seed = i if side == 'train' else 100 + i
                yield i, {'image': encode(pixels_of(seed)), self.kind: value}

    class TinyPets(Tiny, skip_registration=True):
        kind, sides = 'label', ('train', 'test')

    class TinyFaces(Tiny, skip_registration=True):
        kind, sides = 'attributes', ('train',)

    class TinyNumbers(Tiny, skip_registration=True):
        kind, sides = 'number', ('train',)

    root = tmp_path_factory.mktemp('tfds')
    for builder in (TinyPets, TinyFaces, TinyNumbers):
        builder(data_dir=root, file_format='array_record').download_and_prepare()
    return root


class TestTfds:
    def config(self, name: str, root: pathlib.Path, **changes: Any) -> DataConfig:
        fields: dict[str, Any] = {
            'source': f'tfds:{name}@{root}',
            'image_size': 8,
            'channels': 3,
            'num_classes': 2,
            'test_fraction': 0.4,
        }
        return make_config(**(fields | changes))

    @pytest.mark.parametrize('name', ['tiny_pets', 'tiny_pets:1.0.0'])
    def test_its_own_splits_and_class_names(self, tfds_dir, tmp_path, name):
        dataset = prepared(self.config(name, tfds_dir), tmp_path)
        assert dataset.manifest.class_names == ('cat', 'dog')
        expected = np.stack([pixels_of(i) for i in range(24)])
        np.testing.assert_array_equal(dataset.images, expected)
        np.testing.assert_array_equal(dataset.labels, np.arange(24) % 2)
        np.testing.assert_array_equal(dataset.test_images[5], pixels_of(105))

    def test_tensorflow_is_not_needed(self, tfds_dir, tmp_path):
        # In its own process: another test may have imported it.
        code = (
            'import sys, pathlib;'
            'from dpaf_jax import data; from dpaf_jax.config import DataConfig;'
            f'c = DataConfig(**{vars(self.config("tiny_pets", tfds_dir))!r});'
            f'print(data.prepare(c, pathlib.Path({str(tmp_path / "c")!r})).num_test,'
            '"tensorflow" in sys.modules)'
        )
        root = pathlib.Path(data.__file__).parents[2]
        done = subprocess.run(
            [sys.executable, '-c', code],
            capture_output=True,
            text=True,
            check=False,
            cwd=root,
        )
        assert done.stdout.splitlines()[-1:] == ['6 False'], done.stderr

    def test_attributes_are_labels_and_the_rest_is_left_out(self, tfds_dir, tmp_path):
        config = self.config('tiny_faces', tfds_dir, attribute='hair', num_classes=3)
        dataset = prepared(config, tmp_path)
        assert dataset.manifest.class_names == ('black', 'blond', 'brown')
        # Faces 3, 7, ... are black and brown at once.
        every = {pixels_of(i).tobytes(): i % 4 for i in range(24) if i % 4 != 3}
        assert rows(dataset.images) | rows(dataset.test_images) == set(every)
        assert [every[row.tobytes()] for row in dataset.images] == list(dataset.labels)

    def test_which_attribute_has_to_be_said(self, tfds_dir, tmp_path):
        config = self.config('tiny_faces', tfds_dir)
        refused(config, tmp_path, "config.data.attribute: is ''.*'gender' or 'hair'")

    def test_a_data_set_without_labels(self, tfds_dir, tmp_path):
        config = self.config('tiny_numbers', tfds_dir)
        refused(config, tmp_path, 'no feature called label; it has image, number')

    def test_a_name_that_tfds_knows_is_read_from_its_files(self, tfds_dir, tmp_path):
        for path in (tfds_dir / 'tiny_pets').rglob('*'):
            if path.is_file():
                name = path.name.replace('tiny_pets', 'mnist')
                target = tmp_path / 'mnist' / '3.0.1' / name
                target.parent.mkdir(parents=True, exist_ok=True)
                content = path.read_bytes().replace(b'"tiny_pets"', b'"mnist"')
                target.write_bytes(content.replace(b'1.0.0', b'3.0.1'))
        dataset = prepared(self.config('mnist', tmp_path), tmp_path)
        assert dataset.manifest.class_names == ('cat', 'dog')

    def test_an_unprepared_data_set_tells_what_to_run(self, tmp_path):
        config = self.config('mnist', tmp_path / 'none')
        match = (
            r"tfds:mnist is not prepared.*pip install '\.\[tfds\]', then "
            r'tfds build mnist --file_format=array_record --data_dir='
        )
        refused(config, tmp_path, match)

    @pytest.mark.parametrize('name', ['no_such_set', 'tiny_pets:9.9.9', 'a b', '/x'])
    def test_an_unknown_name_does_not_list_all_of_tfds(self, tfds_dir, tmp_path, name):
        with pytest.raises(UserError, match=r'config\.data\.source') as caught:
            data.prepare(self.config(name, tfds_dir), tmp_path / 'cache')
        assert len(str(caught.value)) < 400

    def test_another_file_format(self, tfds_dir, tmp_path):
        root = tmp_path / 'copy'
        for path in (tfds_dir / 'tiny_pets').rglob('*'):
            if path.is_file():
                target = root / path.relative_to(tfds_dir)
                target.parent.mkdir(parents=True, exist_ok=True)
                content = path.read_bytes()
                target.write_bytes(content.replace(b'"array_record"', b'"tfrecord"'))
        config = self.config('tiny_pets', root)
        refused(config, tmp_path, 'prepared as tfrecord.*tfds build tiny_pets')

    def test_a_damaged_shard(self, tfds_dir, tmp_path):
        root = tmp_path / 'copy'
        for path in (tfds_dir / 'tiny_pets').rglob('*'):
            if path.is_file():
                target = root / path.relative_to(tfds_dir)
                target.parent.mkdir(parents=True, exist_ok=True)
                content = path.read_bytes()
                target.write_bytes(
                    content[:2000] if 'train.a' in path.name else content
                )
        refused(self.config('tiny_pets', root), tmp_path, 'record 0 cannot be read')
