"""A folder of pictures: what is read, and what is refused by name."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sources import (
    encode,
    make_config,
    pixels_of,
    prepared,
    refused,
    rows,
    write_picture,
)

from dpaf_jax.config import DataConfig
from dpaf_jax.data.sources import open_source
from dpaf_jax.data.sources.listing import SUFFIXES


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

    def test_pictures_of_mixed_sizes_are_cropped_and_resized_each_by_itself(
        self, root, tmp_path
    ):
        sizes = {'a': (9, 12), 'b': (30, 16), 'c': (5, 5), 'd': (8, 8)}
        for seed, (name, size) in enumerate(sizes.items()):
            write_picture(root / 'dog' / f'{name}.png', seed, *size)
        every = prepared(self.config(root), tmp_path)
        found = rows(every.images) | rows(every.test_images)
        for seed, (height, width) in enumerate(sizes.values()):
            side = min(height, width)
            top, left = (height - side) // 2, (width - side) // 2
            square = pixels_of(seed, height, width)[top:, left:][:side, :side]
            alone = Image.fromarray(square).resize((8, 8), Image.Resampling.LANCZOS)
            assert np.asarray(alone).tobytes() in found

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

    def test_the_page_names_every_kind_that_is_read(self):
        page = pathlib.Path(__file__).parents[2] / 'docs' / 'howto' / 'data.md'
        line = page.read_text(encoding='utf-8').partition('Picture files ending in ')[2]
        read = line.partition(' are')[0].replace(' or ', ', ').split(', ')
        assert tuple(kind.strip() for kind in read) == SUFFIXES

    def test_pictures_without_classes_are_counted_with_the_remedy(self, tmp_path):
        for i in range(60):
            write_picture(tmp_path / 'flat' / f'{i}.png', i)
        match = (
            'flat: holds 60 pictures, but no classes.*sub-folder a class.*labels.csv'
        )
        refused(self.config(tmp_path / 'flat'), tmp_path, match)

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

    def test_the_last_test_picture_does_not_decide_where_the_others_are(self, tmp_path):
        head, rows = (
            'file,label,split\n',
            [f'{i}.png,{i % 2},train\n' for i in range(6)],
        )
        text = head + ''.join([*rows[:5], '5.png,1,test\n'])
        assert len(prepared(self.table(tmp_path / 'x', text), tmp_path).images) == 5
        gone = self.table(tmp_path / 'y', head + ''.join(rows[:5]))
        refused(gone, tmp_path / 'other', 'y: has no test images')
        everything = dataclasses.replace(gone, test_fraction=0.0)
        refused(everything, tmp_path / 'other', 'y: has no test images')

    @pytest.mark.parametrize(
        ('text', 'match'),
        [
            ('name,class\n', 'labels.csv: lacks the columns file and label'),
            ('', 'labels.csv: lacks the columns file and label'),
            ('file,label\n', 'x: lists no pictures in labels.csv'),
            ('file,label\n0.png,0\n9.png,1\n', 'line 3: names 9.png, which does not'),
            ('file,label\n0.png,0\n./0.png,1\n', 'line 3: lists 0.png a second time'),
            ('file,label\n0.png\n', 'line 2: has no file or no label'),
            ('file,label,split\n0.png,0,val\n', 'line 2: has a split other than'),
            ('file,label,label\n0.png,0,1\n', 'labels.csv: has the column label twice'),
            ('file,label,split\n0.png,0\n', 'line 2: has a split other than'),
            (
                'file,label,split\n0.png,0,train\n1.png,5,train\n',
                r'the label of 1.png is outside 0 \.\. 1',
            ),
        ],
    )
    def test_a_bad_table_names_the_line(self, tmp_path, text, match):
        refused(self.table(tmp_path / 'x', text), tmp_path, match)

    def test_what_python_alone_takes_for_a_number_is_a_name(self, tmp_path):
        text = 'file,label,split\n0.png,0_1,train\n1.png,1_0,train\n0.jpg,1_0,test\n'
        config = self.table(tmp_path / 'x', text)
        write_picture(tmp_path / 'x' / '0.jpg', 7)
        source = open_source(config)
        assert source.class_names == ('0_1', '1_0')

    def test_a_table_in_another_encoding(self, tmp_path):
        config = self.table(tmp_path / 'x', '')
        (tmp_path / 'x' / 'labels.csv').write_bytes(b'file,label\n\xff\xfe.png,0\n')
        refused(config, tmp_path, 'labels.csv: is not a table.*UTF-8')
