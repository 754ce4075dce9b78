"""CelebA in its own layout: folder and tar, gender and hair."""

import io
import pathlib
import tarfile

import numpy as np
import pytest
from PIL import Image
from sources import make_config, pixels_of, prepared, refused, write_picture

from dpaf_jax import data
from dpaf_jax.config import DataConfig
from dpaf_jax.data.sources import open_source
from dpaf_jax.runtime.errors import UserError

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

    def test_any_column_of_the_attribute_file(self, tmp_path):
        fields = vars(self.write(tmp_path / 'x'))
        config = DataConfig(**fields | {'attribute': 'Blond_Hair'})
        dataset = prepared(config, tmp_path)
        assert dataset.manifest.class_names == ('not Blond_Hair', 'Blond_Hair')
        every = {pixels_of(i, 12, 8)[2:10].tobytes(): i % 5 == 1 for i in range(30)}
        assert [every[row.tobytes()] for row in dataset.images] == list(dataset.labels)
        refused(
            DataConfig(**fields | {'attribute': 'Smiling'}),
            tmp_path / 'other',
            'list_attr_celeba.txt, line 2: has no column Smiling',
        )

    def test_faces_that_a_filter_empties_count_in_n(self, tmp_path):
        # Else N, and every rate that derives from it, would publish how many are left.
        gender = self.write(tmp_path / 'x')
        hair = DataConfig(**vars(gender) | {'attribute': 'hair', 'num_classes': 3})
        every = data.prepare(gender, tmp_path / 'gender')
        some = data.prepare(hair, tmp_path / 'hair')
        assert some.num_examples == every.num_examples == every.num_present
        assert some.num_present < some.num_examples
        for number in (some.num_examples, 1000):
            asked = DataConfig(**vars(hair) | {'num_examples': number})
            data.prepare(asked, tmp_path / 'hair')
            # Each has a place, whichever coins decide.
            held = data.load(asked, tmp_path / 'hair')
            assert len(held.placed(np.random.default_rng(0)).index) == some.num_present
        # Places are in the list: N counts all of it, also where fewer are left.
        for number in (some.num_present, some.num_examples - 1):
            asked = DataConfig(**vars(hair) | {'num_examples': number})
            for directory in ('hair', 'again'):
                with pytest.raises(
                    UserError, match=r'config\.data\.num_examples: is \d+, but'
                ):
                    data.prepare(asked, tmp_path / directory)

    def test_faces_that_a_filter_empties_leave_the_others_in_their_places(
        self, tmp_path
    ):
        gender = self.write(tmp_path / 'x')
        hair = DataConfig(**vars(gender) | {'attribute': 'hair', 'num_classes': 3})
        every = prepared(gender, tmp_path / 'every')
        some = prepared(hair, tmp_path / 'some')
        np.testing.assert_array_equal(every.index, np.arange(len(every.images)))
        assert len(some.index) < len(every.index)
        np.testing.assert_array_equal(every.images[some.index], some.images)

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
            (lambda lines: lines[:-1], 'line 1: does not count'),
            (lambda lines: [], 'line 1: does not count'),
            (lambda lines: [*lines[:7], lines[7][:-3], *lines[8:]], 'line 8: is malf'),
            (lambda lines: [*lines[:7], lines[6], *lines[8:]], 'line 8: .*repetition'),
            (
                lambda lines: [*lines[:7], lines[7].replace('1', '2'), *lines[8:]],
                'line 8: is malformed',
            ),
            (lambda lines: [lines[0], 'A B C D', *lines[2:]], 'line 2: has no column'),
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

    def test_the_real_faces(self, data_dir):
        config = make_config(
            source=f'celeba:{data_dir}/celeba10k.tar', attribute='hair'
        )
        source = open_source(config)
        picture = Image.open(io.BytesIO(next(source.contents())))  # type: ignore[arg-type]
        assert picture.size == (89, 109)
        assert set(source.labels) == {0, 1, 2} and len(source.labels) == 10_000
        assert 1000 < np.sum(source.is_present) < 10_000
