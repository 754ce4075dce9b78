"""Each kind of source: what it reads, and what it refuses by name."""

import gzip
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from configs.default import get_config
from dpaf_jax import data
from dpaf_jax.config import DataConfig
from dpaf_jax.data.sources import open_source
from dpaf_jax.data.split import hash_split
from dpaf_jax.errors import UserError


def make_config(**changes: Any) -> DataConfig:
    return DataConfig(**(get_config().data.to_dict() | changes))


def pixels_of(seed: int, height: int = 8, width: int = 8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, 3), np.uint8)


def encode(pixels: np.ndarray, form: str = 'PNG') -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def write_picture(path: pathlib.Path, seed: int, height: int = 8, width: int = 8):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(pixels_of(seed, height, width)))


def prepared(config: DataConfig, tmp_path: pathlib.Path) -> data.Dataset:
    data.prepare(config, tmp_path / 'cache')
    return data.load(config, tmp_path / 'cache')


def refused(config: DataConfig, tmp_path: pathlib.Path, match: str) -> None:
    with pytest.raises(UserError, match=match):
        data.prepare(config, tmp_path / 'cache')
    assert not list(tmp_path.glob('cache*'))


def rows(images: np.ndarray) -> set[bytes]:
    return {image.tobytes() for image in images}


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


class TestFolder:
    def config(self, root: pathlib.Path, **changes: Any) -> DataConfig:
        fields: dict[str, Any] = {
            'source': f'folder:{root}',
            'image_size': 8,
            'channels': 3,
            'num_classes': 2,
            'test_fraction': 0.4,
        }
        return make_config(**(fields | changes))

    @pytest.fixture
    def root(self, tmp_path: pathlib.Path) -> pathlib.Path:
        """Twenty pictures in the classes 'cat' and 'dog'."""
        root = tmp_path / 'pictures'
        for i in range(20):
            write_picture(root / ('cat', 'dog')[i % 2] / f'{i:03d}.png', i)
        return root

    def test_class_names_are_the_sorted_folders(self, root, tmp_path):
        dataset = prepared(self.config(root), tmp_path)
        assert dataset.manifest.class_names == ('cat', 'dog')
        cats = rows(np.stack([pixels_of(i) for i in range(0, 20, 2)]))
        for images, labels in (
            (dataset.images, dataset.labels),
            (dataset.test_images, dataset.test_labels),
        ):
            assert [int(row.tobytes() not in cats) for row in images] == list(labels)
        assert len(dataset.images) + len(dataset.test_images) == 20

    def test_a_record_stays_on_its_side_when_others_go(self, root, tmp_path):
        before = prepared(self.config(root), tmp_path)
        (root / 'cat' / '004.png').unlink()
        (root / 'dog' / '007.png').unlink()
        (tmp_path / 'second').mkdir()
        after = prepared(self.config(root), tmp_path / 'second')
        assert rows(after.images) <= rows(before.images)
        assert rows(after.test_images) <= rows(before.test_images)

    def test_train_and_test_folders_are_the_splits(self, root, tmp_path):
        (tmp_path / 'split').mkdir()
        root.rename(tmp_path / 'split' / 'train')
        for i in range(4):
            name = f'test/{("cat", "dog")[i % 2]}/deeper/{i}.PNG'
            write_picture(tmp_path / 'split' / name, 100 + i)
        dataset = prepared(self.config(tmp_path / 'split', test_fraction=0.0), tmp_path)
        assert (len(dataset.images), list(dataset.test_labels)) == (20, [0, 0, 1, 1])

    def test_a_class_may_be_called_train(self, root, tmp_path):
        (root / 'dog').rename(root / 'train')
        dataset = prepared(self.config(root), tmp_path)
        assert dataset.manifest.class_names == ('cat', 'train')

    def test_other_files_are_passed_over(self, root, tmp_path):
        for name in ('cat/readme.txt', 'dog/._001.png', '.git/x.png', 'notes.md'):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text('no picture')
        dataset = prepared(self.config(root), tmp_path)
        assert len(dataset.images) + len(dataset.test_images) == 20

    def test_a_class_that_only_test_has(self, root, tmp_path):
        (tmp_path / 'split').mkdir()
        root.rename(tmp_path / 'split' / 'train')
        write_picture(tmp_path / 'split' / 'test' / 'emu' / '0.png', 0)
        refused(self.config(tmp_path / 'split'), tmp_path, 'test: has the class emu')

    def test_mixed_sizes_name_both_files(self, root, tmp_path):
        write_picture(root / 'dog' / '999.png', 0, height=9, width=10)
        match = r'dog/999.png is 9 x 10 .*cat/000.png is 8 x 8.*one size first'
        refused(self.config(root), tmp_path, match)

    @pytest.mark.parametrize('form', ['PNG', 'JPEG'])
    @pytest.mark.parametrize('keep', [0, 20, 0.5, 0.9])
    def test_a_truncated_picture_is_named(self, root, tmp_path, form, keep):
        content = encode(pixels_of(3, 64, 64), form)
        length = keep if isinstance(keep, int) else int(keep * len(content))
        (root / 'dog' / '003.png').write_bytes(content[:length])
        refused(self.config(root), tmp_path, 'dog/003.png is (truncated|not a picture)')

    def test_a_picture_that_cannot_be_read_is_named(self, root, tmp_path):
        (root / 'dog' / '003.png').unlink()
        (root / 'dog' / '003.png').symlink_to('/no/such/file')
        refused(self.config(root), tmp_path, 'dog/003.png: cannot be read')

    def test_a_class_without_pictures(self, root, tmp_path):
        (root / 'emu').mkdir()
        config = self.config(root, num_classes=3)
        refused(config, tmp_path, r'class 2 \(emu\) has no training images')

    def test_another_number_of_classes(self, root, tmp_path):
        config = self.config(root, num_classes=3)
        refused(config, tmp_path, 'config.data.num_classes: is 3.*2 classes')

    def test_empty_folders_and_files(self, tmp_path):
        (tmp_path / 'empty').mkdir()
        match = 'empty: holds no pictures.*sub-folder a class'
        refused(self.config(tmp_path / 'empty'), tmp_path, match)
        (tmp_path / 'file').touch()
        refused(self.config(tmp_path / 'file'), tmp_path, 'config.data.source.*a file')

    def table(self, root: pathlib.Path, text: str) -> DataConfig:
        for i in range(6):
            write_picture(root / f'{i}.png', i)
        (root / 'labels.csv').write_text(text, encoding='utf-8')
        return self.config(root)

    def test_a_table_of_numbers(self, tmp_path):
        text = '\ufefffile,label,age\n' + ''.join(
            f'{i}.png,{i % 2},40\n' for i in range(6)
        )
        dataset = prepared(self.table(tmp_path / 'x', text), tmp_path)
        every = {pixels_of(i).tobytes(): i % 2 for i in range(6)}
        assert [every[row.tobytes()] for row in dataset.images] == list(dataset.labels)
        assert len(dataset.images) + len(dataset.test_images) == 6

    def test_a_table_of_names_with_splits(self, tmp_path):
        text = 'file,label,split\n' + ''.join(
            f'{i}.png,{("sick", "fit")[i % 2]},{"test" if i > 3 else "train"}\n'
            for i in range(6)
        )
        dataset = prepared(self.table(tmp_path / 'x', text), tmp_path)
        assert dataset.manifest.class_names == ('fit', 'sick')
        assert list(dataset.labels) == [1, 0, 1, 0]
        np.testing.assert_array_equal(dataset.test_images[0], pixels_of(4))

    @pytest.mark.parametrize(
        ('text', 'match'),
        [
            ('name,class\n', 'labels.csv: lacks the columns file and label'),
            ('', 'labels.csv: lacks the columns file and label'),
            ('file,label\n', 'x: holds no pictures'),
            ('file,label\n0.png,0\n9.png,1\n', 'line 3: names 9.png, which does not'),
            ('file,label\n0.png,0\n./0.png,1\n', 'line 3: lists 0.png a second time'),
            ('file,label\n0.png\n', 'line 2: has no file or no label'),
            ('file,label,split\n0.png,0,val\n', 'line 2: has a split other than'),
            ('file,label,split\n0.png,0\n', 'line 2: has a split other than'),
            (
                'file,label,split\n0.png,0,train\n1.png,5,train\n',
                r'the label of 1.png is outside 0 \.\. 1',
            ),
        ],
    )
    def test_a_bad_table_names_the_line(self, tmp_path, text, match):
        refused(self.table(tmp_path / 'x', text), tmp_path, match)

    def test_a_table_in_another_encoding(self, tmp_path):
        config = self.table(tmp_path / 'x', '')
        (tmp_path / 'x' / 'labels.csv').write_bytes(b'file,label\n\xff\xfe.png,0\n')
        refused(config, tmp_path, 'labels.csv: is not a table.*UTF-8')


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


CELEBA_HEADER = 'Black_Hair Blond_Hair Brown_Hair Male'


class TestCeleba:
    # black, blond, brown, none, two at once; every second one male
    hair = ('1 -1 -1', '-1 1 -1', '-1 -1 1', '-1 -1 -1', '1 -1 1')

    def write(self, root: pathlib.Path, number: int = 30) -> DataConfig:
        lines = [str(number), CELEBA_HEADER]
        for i in range(number):
            write_picture(root / 'img_align_celeba' / f'{i:06d}.jpg', i, 12, 8)
            lines.append(f'{i:06d}.jpg  {self.hair[i % 5]} {1 if i % 2 else -1}')
        (root / 'list_attr_celeba.txt').write_text('\n'.join(lines) + '\n')
        return make_config(
            source=f'celeba:{root}',
            image_size=8,
            channels=3,
            num_classes=2,
            attribute='gender',
            test_fraction=0.3,
        )

    def test_gender_of_the_centred_square(self, tmp_path):
        dataset = prepared(self.write(tmp_path / 'x'), tmp_path)
        assert dataset.manifest.class_names == ('female', 'male')
        every = {pixels_of(i, 12, 8)[2:10].tobytes(): i % 2 for i in range(30)}
        assert [every[row.tobytes()] for row in dataset.images] == list(dataset.labels)
        assert len(dataset.images) + len(dataset.test_images) == 30

    def test_hair_of_exactly_one_colour(self, tmp_path):
        fields = vars(self.write(tmp_path / 'x'))
        config = DataConfig(**fields | {'attribute': 'hair', 'num_classes': 3})
        dataset = prepared(config, tmp_path)
        every = {pixels_of(i, 12, 8)[2:10].tobytes(): i % 5 for i in range(30)}
        assert [every[row.tobytes()] for row in dataset.images] == list(dataset.labels)
        assert len(dataset.images) + len(dataset.test_images) == 18

    def test_faces_that_a_filter_empties_count_in_n(self, tmp_path):
        # Else N, and every rate that derives from it, would publish how many are left.
        gender = self.write(tmp_path / 'x')
        hair = DataConfig(**vars(gender) | {'attribute': 'hair', 'num_classes': 3})
        every = data.prepare(gender, tmp_path / 'gender')
        some = data.prepare(hair, tmp_path / 'hair')
        assert some.num_examples == every.num_examples == every.num_present
        assert some.num_present < some.num_examples
        for number in (some.num_present, some.num_examples, 1000):
            asked = DataConfig(**vars(hair) | {'num_examples': number})
            data.prepare(asked, tmp_path / 'hair')
        asked = DataConfig(**vars(hair) | {'num_examples': some.num_present - 1})
        with pytest.raises(
            UserError, match=r'config\.data\.num_examples: is \d+, but'
        ) as e:
            data.prepare(asked, tmp_path / 'hair')
        assert str(some.num_present) not in str(e.value).replace(
            str(asked.num_examples), ''
        )

    def test_a_tar_is_the_same_as_its_folder(self, tmp_path):
        config = self.write(tmp_path / 'x')
        with tarfile.open(tmp_path / 'x.tar', 'w') as archive:
            archive.add(tmp_path / 'x', arcname='./celeba')
        packed = DataConfig(**vars(config) | {'source': f'celeba:{tmp_path}/x.tar'})
        first = data.prepare(config, tmp_path / 'a')
        assert data.prepare(packed, tmp_path / 'b').checksum == first.checksum

    def test_the_official_partition_without_its_validation_faces(self, tmp_path):
        config = self.write(tmp_path / 'x')
        (tmp_path / 'x' / 'Eval').mkdir()
        lines = [
            f'{i:06d}.jpg {0 if i < 20 else 1 if i < 24 else 2}' for i in range(30)
        ]
        path = tmp_path / 'x' / 'Eval' / 'list_eval_partition.txt'
        path.write_text('\n'.join(lines))
        manifest = data.prepare(config, tmp_path / 'cache')
        assert (manifest.num_examples, manifest.num_test) == (20, 6)
        path.write_text('\n'.join(lines[:-1]))
        config = DataConfig(**vars(config))
        with pytest.raises(UserError, match=r'partition\.txt: has no line for 000029'):
            data.prepare(config, tmp_path / 'other')

    def test_the_attribute_has_to_be_said(self, tmp_path):
        fields = vars(self.write(tmp_path / 'x')) | {'attribute': ''}
        refused(DataConfig(**fields), tmp_path, 'config.data.attribute')

    @pytest.mark.parametrize(
        ('change', 'match'),
        [
            (lambda lines: lines[:-1], 'line 1: does not fit'),
            (lambda lines: [], 'line 1: does not fit'),
            (lambda lines: [*lines[:7], lines[7][:-3], *lines[8:]], 'line 8: is malf'),
            (lambda lines: [*lines[:7], lines[6], *lines[8:]], 'line 8: .*repetition'),
            (
                lambda lines: [*lines[:7], lines[7].replace('1', '2'), *lines[8:]],
                'line 8: is malformed',
            ),
            (lambda lines: [lines[0], 'A B C D', *lines[2:]], 'line 1: does not fit'),
        ],
    )
    def test_a_bad_attribute_file_names_the_line(self, tmp_path, change, match):
        config = self.write(tmp_path / 'x')
        path = tmp_path / 'x' / 'list_attr_celeba.txt'
        path.write_text('\n'.join(change(path.read_text().splitlines())))
        refused(config, tmp_path, match)

    def test_missing_parts(self, tmp_path):
        config = self.write(tmp_path / 'x')
        (tmp_path / 'x' / 'img_align_celeba' / '000007.jpg').unlink()
        refused(config, tmp_path, 'names 000007.jpg, which is not in img_align_celeba')
        (tmp_path / 'x' / 'list_attr_celeba.txt').unlink()
        refused(config, tmp_path, 'has no list_attr_celeba.txt')
        (tmp_path / 'x' / 'img_align_celeba').rename(tmp_path / 'x' / 'faces')
        refused(config, tmp_path, 'has no img_align_celeba/')

    def test_an_archive_that_is_compressed_or_damaged(self, tmp_path):
        config = self.write(tmp_path / 'x')
        path = tmp_path / 'x.tar'
        config = DataConfig(**vars(config) | {'source': f'celeba:{path}'})
        with tarfile.open(path, 'w:gz') as archive:
            archive.add(tmp_path / 'x', arcname='.')
        refused(config, tmp_path, 'x.tar: is not an uncompressed .tar')
        with tarfile.open(path, 'w') as archive:
            archive.add(tmp_path / 'x', arcname='.')
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        refused(config, tmp_path, 'x.tar')


class TestFfhq:
    def faces(self, i: int) -> list[dict[str, Any]]:
        genders = ('female', 'male')
        first = {'faceAttributes': {'gender': genders[i % 2]}}
        other = {'faceAttributes': {'gender': genders[(i + 1) % 2]}}
        return [] if i == 5 else [first, other]

    def config(self, root: pathlib.Path, form: str) -> DataConfig:
        """Twenty pictures with two faces each, but number 5, which has none."""
        records = [{'id': i, 'faces': self.faces(i)} for i in range(25)]
        lines = '\n'.join(map(json.dumps, records)) + '\n'
        for i in range(20):
            write_picture(root / f'{i // 10 * 10:05d}' / f'{i:05d}.png', i)
        path = root / f'features{form}'
        if form == '':
            (path / 'json').mkdir(parents=True)
            for i in range(20):
                (path / 'json' / f'{i:05d}.json').write_text(json.dumps(self.faces(i)))
        elif form == '.jsonl.gz':
            path.write_bytes(gzip.compress(lines.encode()))
        else:
            path.write_text(lines if form == '.jsonl' else json.dumps(records))
        return make_config(
            source=f'ffhq:{root}',
            annotations=str(path),
            attribute='gender',
            image_size=8,
            channels=3,
            num_classes=2,
            test_fraction=0.3,
        )

    @pytest.mark.parametrize('form', ['', '.json', '.jsonl', '.jsonl.gz'])
    def test_the_first_face_counts_and_none_is_left_out(self, tmp_path, form):
        dataset = prepared(self.config(tmp_path / 'x', form), tmp_path)
        every = {pixels_of(i).tobytes(): i % 2 for i in range(20) if i != 5}
        assert rows(dataset.images) | rows(dataset.test_images) == set(every)
        assert [every[row.tobytes()] for row in dataset.images] == list(dataset.labels)

    def test_the_split_does_not_depend_on_sub_folders(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl')
        nested = prepared(config, tmp_path)
        for path in (tmp_path / 'x').rglob('*.png'):
            path.rename(tmp_path / 'x' / path.name)
        data.prepare(config, tmp_path / 'flat')
        flat = data.load(config, tmp_path / 'flat')
        assert flat.manifest.checksum == nested.manifest.checksum

    def test_no_annotations(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl')
        for path in ('', '/no/such/file'):
            bad = DataConfig(**vars(config) | {'annotations': path})
            refused(bad, tmp_path, 'config.data.annotations')

    @pytest.mark.parametrize('form', ['', '.jsonl'])
    def test_a_picture_without_a_record(self, tmp_path, form):
        config = self.config(tmp_path / 'x', form)
        write_picture(tmp_path / 'x' / '00099.png', 0)
        refused(config, tmp_path, '00099.*Complete the annotations, or remove')

    def test_one_number_twice(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl')
        write_picture(tmp_path / 'x' / '00003.png', 0)
        refused(config, tmp_path, 'holds picture 00003 twice')

    def test_a_name_that_is_no_number(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl')
        write_picture(tmp_path / 'x' / 'cover.png', 0)
        refused(config, tmp_path, 'cover.png: is not named by a number')

    @pytest.mark.parametrize(
        ('line', 'match'),
        [
            ('{"id": 3, "fa', 'line 4: is not JSON'),
            ('{"id": 3}', 'line 4: has no id or faces'),
            ('[]', 'line 4: has no id or faces'),
            ('{"id": 2, "faces": []}', 'line 4: record 00002 is there twice'),
            ('{"id": 3, "faces": [{}]}', 'record 00003 is malformed'),
            (
                '{"id": 3, "faces": [{"faceAttributes": {"gender": "?"}}]}',
                'record 00003 is malformed',
            ),
        ],
    )
    def test_a_bad_record_is_named(self, tmp_path, line, match):
        config = self.config(tmp_path / 'x', '.jsonl')
        path = tmp_path / 'x' / 'features.jsonl'
        lines = path.read_text().splitlines()
        path.write_text('\n'.join([*lines[:3], line, *lines[4:]]))
        refused(config, tmp_path, match)

    def test_a_truncated_gzip_file(self, tmp_path):
        config = self.config(tmp_path / 'x', '.jsonl.gz')
        path = tmp_path / 'x' / 'features.jsonl.gz'
        path.write_bytes(path.read_bytes()[:-20])
        refused(config, tmp_path, 'features.jsonl.gz')


class TestRealData:
    def test_mnist(self, data_dir, tmp_path):
        config = make_config(source=f'npz:{data_dir}/mnist.npz', image_size=28)
        dataset = prepared(config, tmp_path)
        with np.load(data_dir / 'mnist.npz') as raw:
            np.testing.assert_array_equal(dataset.images[..., 0], raw['train_x'])
            np.testing.assert_array_equal(dataset.test_labels, raw['test_y'])

    def test_celeba(self, data_dir):
        config = make_config(
            source=f'celeba:{data_dir}/celeba10k.tar', attribute='hair'
        )
        source = open_source(config)
        picture = Image.open(io.BytesIO(next(source.contents())))  # type: ignore[arg-type]
        assert picture.size == (89, 109)
        assert set(source.labels) == {0, 1, 2} and len(source.labels) == 10_000
        assert 1000 < np.sum(source.is_present) < 10_000

    def test_ffhq_features(self, data_dir, tmp_path):
        for i in range(40):
            write_picture(tmp_path / 'x' / f'{i:05d}.png', i)
        config = make_config(
            source=f'ffhq:{tmp_path}/x',
            annotations=f'{data_dir}/ffhq_features_first2000.jsonl.gz',
            attribute='gender',
            image_size=8,
            num_classes=2,
        )
        dataset = prepared(config, tmp_path)
        with gzip.open(config.annotations, 'rt') as file:
            records = [json.loads(next(file)) for _ in range(40)]
        faces = sum(bool(record['faces']) for record in records)
        assert len(dataset.images) + len(dataset.test_images) == faces
