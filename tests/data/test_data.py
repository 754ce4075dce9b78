"""Preparing and loading data: what holds for every source."""

import collections
import dataclasses
import hashlib
import itertools
import json
import pathlib
import resource
import shutil
import stat
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import tiny_runs
from PIL import Image
from scipy import stats
from sources import make_config, write_picture

from dpaf_jax import data
from dpaf_jax.config import DataConfig
from dpaf_jax.data import decode
from dpaf_jax.data.decode import decoded
from dpaf_jax.data.manifest import ARRAYS
from dpaf_jax.data.sources.base import Source
from dpaf_jax.runtime.errors import UserError


def write_npz(path: pathlib.Path, seed: int = 0, **arrays: np.ndarray) -> DataConfig:
    """Twenty 8 x 8 images in two classes, and the config that reads them."""
    rng = np.random.default_rng(seed)
    content: dict[str, np.ndarray] = {
        'train_x': rng.integers(0, 256, (14, 8, 8), np.uint8),
        'train_y': np.arange(14) % 2,
        'test_x': rng.integers(0, 256, (6, 8, 8), np.uint8),
        'test_y': np.arange(6) % 2,
    }
    np.savez(path, **(content | arrays))
    return make_config(source=f'npz:{path}', image_size=8, num_classes=2)


@pytest.fixture
def config(tmp_path: pathlib.Path) -> DataConfig:
    return write_npz(tmp_path / 'data.npz')


@pytest.fixture
def cache(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / 'run' / 'data'


class TestPrepare:
    def test_arrays_are_the_sources_and_the_manifest_describes_them(
        self, config, cache, tmp_path
    ):
        manifest = data.prepare(config, cache)
        dataset = data.load(config, cache)
        raw = np.load(tmp_path / 'data.npz')
        np.testing.assert_array_equal(dataset.images[..., 0], raw['train_x'])
        np.testing.assert_array_equal(dataset.labels, raw['train_y'])
        np.testing.assert_array_equal(dataset.test_images[..., 0], raw['test_x'])
        np.testing.assert_array_equal(dataset.test_labels, raw['test_y'])
        assert (dataset.images.dtype, dataset.labels.dtype) == (np.uint8, np.int32)
        assert dataset.manifest == manifest == data.read_manifest(cache)
        assert (manifest.num_examples, manifest.num_test) == (14, 6)
        assert manifest.class_names == ('0', '1')

    def test_a_shared_cache_is_of_one_folder_wherever_one_stands(
        self, tmp_path, monkeypatch
    ):
        cache = tmp_path / 'cache'
        fields = {'num_classes': 2, 'test_fraction': 0.0, 'cache': str(cache)}
        config = make_config(source='folder:pics', **fields)
        for name in ('A', 'B'):
            for i in range(4):
                place = tmp_path / name / 'pics' / 'xy'[i % 2] / f'{i}.png'
                write_picture(place, i + ord(name))
        for _ in range(2):
            monkeypatch.chdir(tmp_path / 'A')
            first = data.prepare(config, cache)
        monkeypatch.chdir(tmp_path / 'B')
        with pytest.raises(UserError, match=r'source = .*A/pics.*asked: .*B/pics'):
            data.prepare(config, cache)
        absolute = dataclasses.replace(config, source=f'folder:{tmp_path}/A/pics')
        assert data.prepare(absolute, cache) == first

    def test_images_are_read_only_memory_maps(self, config, cache):
        data.prepare(config, cache)
        dataset = data.load(config, cache)
        assert isinstance(dataset.images, np.memmap)
        with pytest.raises(ValueError):
            dataset.images[0] = 0

    def test_only_the_owner_can_enter_the_directory(self, config, cache):
        cache.mkdir(parents=True, mode=0o755)
        data.prepare(config, cache)
        assert stat.S_IMODE(cache.stat().st_mode) == 0o700

    def test_a_second_call_reads_nothing_but_the_manifest(
        self, config, cache, tmp_path
    ):
        first = data.prepare(config, cache)
        (tmp_path / 'data.npz').unlink()
        (cache / 'train_images.npy').unlink()
        assert data.prepare(config, cache) == first

    def test_the_checksum_depends_on_the_arrays_alone(self, tmp_path):
        def checksum(name: str, seed: int, **arrays: np.ndarray) -> str:
            made = write_npz(tmp_path / f'{name}.npz', seed, **arrays)
            return data.prepare(made, tmp_path / name).checksum

        first = checksum('a', 0)
        assert checksum('same', 0) == first
        assert checksum('pixels', 1) != first
        assert checksum('labels', 0, train_y=np.arange(1, 15) % 2) != first
        assert len(first) == len(hashlib.sha256().hexdigest())

    def test_arrays_that_are_as_they_were_written_pass(self, config, cache):
        manifest = data.prepare(config, cache)
        assert set(manifest.checksums) == {path.name for path in cache.glob('*.npy')}
        data.check_arrays(data.load(config, cache), cache)

    @pytest.mark.parametrize('name', sorted(ARRAYS))
    @pytest.mark.parametrize('noted', [True, False])
    def test_a_changed_array_is_found_though_the_manifest_is_the_old_one(
        self, config, cache, name, noted
    ):
        data.prepare(config, cache)
        array = np.load(cache / name)
        array.flat[3] = array.flat[3] ^ 1
        np.save(cache / name, array)
        dataset = data.load(config, cache)
        if not noted:  # prepared before each array's checksum was
            dataset = dataclasses.replace(
                dataset, manifest=dataclasses.replace(dataset.manifest, checksums={})
            )
        with pytest.raises(UserError, match='has changed since .* Delete ') as error:
            data.check_arrays(dataset, cache)
        where = cache / name if noted else cache
        assert str(error.value).startswith(f'{where}: has')

    @pytest.mark.parametrize(
        'change',
        [
            {'image_size': 16},
            {'channels': 3},
            {'test_fraction': 0.5},
            {'source': 'digits'},
            {'attribute': 'hair'},
            {'annotations': 'elsewhere'},
            {'num_classes': 3},
        ],
    )
    def test_a_cache_of_other_settings_is_refused_and_kept(self, config, cache, change):
        manifest = data.prepare(config, cache)
        other = dataclasses.replace(config, **change)
        (name,) = change
        for use in (data.prepare, data.load):
            with pytest.raises(UserError, match=f'{name} = .*asked.*delete this one'):
                use(other, cache)
        assert data.read_manifest(cache) == manifest

    def test_settings_that_do_not_shape_the_data_do_not_matter(self, config, cache):
        data.prepare(config, cache)
        other = dataclasses.replace(config, class_prior=(0.3, 0.7), cache='x')
        data.load(other, cache)

    def test_a_public_n_below_the_training_images_is_refused(self, config, cache):
        small = dataclasses.replace(config, num_examples=13)
        match = r'config\.data\.num_examples: is 13, but there are more'
        with pytest.raises(UserError, match=match) as caught:
            data.prepare(small, cache)
        assert not cache.exists()
        assert '14' not in str(caught.value), 'the owner need not publish the number'
        data.prepare(config, cache)
        for use in (data.prepare, data.load):
            with pytest.raises(UserError, match=match):
                use(small, cache)

    @pytest.mark.parametrize('number', [0, 14, 20, 1000])
    def test_any_larger_n_is_that_of_the_data(
        self, config, cache, caplog, number, monkeypatch
    ):
        monkeypatch.setattr(sys.stderr, 'isatty', lambda: True)
        manifest = data.prepare(config, cache)
        asked = dataclasses.replace(config, num_examples=number)
        assert data.prepare(asked, cache) == manifest
        assert ('more than twice the training records' in caplog.text) is (number > 28)
        caplog.clear()
        monkeypatch.setattr(sys.stderr, 'isatty', lambda: False)
        data.prepare(asked, cache)
        assert not caplog.text, 'others who read a log learn nothing of the number'
        assert data.load(asked, cache).manifest.num_examples == (number or 14)
        np.testing.assert_array_equal(data.load(asked, cache).index, np.arange(14))

    def test_two_at_a_time_leave_one_whole_copy(self, cache):
        config = make_config()
        results: list[data.Manifest] = []
        threads = [
            threading.Thread(target=lambda: results.append(data.prepare(config, cache)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 2 and results[0] == results[1]
        assert [p.name for p in cache.parent.iterdir()] == ['data']
        data.load(config, cache)

    def test_what_a_killed_preparation_left_is_reported_not_used(
        self, config, cache, caplog
    ):
        left = cache.parent / 'data.unfinished-abc'
        left.mkdir(parents=True)
        data.prepare(config, cache)
        assert str(left) in caplog.text
        data.load(config, cache)


class TestFailures:
    """Each refusal names what to mend, and leaves nothing behind."""

    def refused(self, config: DataConfig, cache: pathlib.Path, match: str) -> str:
        with pytest.raises(UserError, match=match) as caught:
            data.prepare(config, cache)
        assert not cache.exists()
        if cache.parent.is_dir():
            assert list(cache.parent.iterdir()) == []
        return str(caught.value)

    def test_channels_other_than_grey_and_colour(self, config, cache):
        config = dataclasses.replace(config, channels=2)
        self.refused(config, cache, 'config.data.channels: is 2')

    def test_an_unknown_kind_of_source(self, config, cache):
        config = dataclasses.replace(config, source='hdf5:x')
        self.refused(config, cache, "config.data.source: is 'hdf5:x'.*folder")

    def test_a_number_of_classes_that_the_source_does_not_have(self, cache):
        config = make_config(num_classes=9)
        self.refused(config, cache, 'config.data.num_classes: is 9.*10 classes')

    @pytest.mark.parametrize('bad', [-1, 2])
    def test_a_label_outside_the_range_without_telling_it(self, tmp_path, cache, bad):
        labels = np.array([0, 1, 0, bad] + [1] * 10)
        config = write_npz(tmp_path / 'x.npz', train_y=labels)
        message = self.refused(config, cache, r'the label of train_x\[3\] is outside')
        assert f'is {bad}' not in message

    def test_a_class_without_training_images(self, tmp_path, cache):
        # Two images have the class, but both are in the test split.
        config = write_npz(tmp_path / 'x.npz', train_y=np.zeros(14, int))
        match = r'x.npz: class 1 \(1\) has no training images'
        message = self.refused(config, cache, match)
        assert '14' not in message.split('x.npz')[1], 'counts per class are private'

    def test_an_empty_test_split(self, cache):
        self.refused(make_config(test_fraction=1e-9), cache, 'has no test images')

    def test_a_path_that_does_not_exist(self, cache):
        for kind in ('npz', 'folder', 'celeba'):
            config = make_config(
                source=f'{kind}:/no/such/path',
                attribute='gender' if kind == 'celeba' else '',
            )
            self.refused(config, cache, 'config.data.source.*does not exist')

    def test_an_attribute_that_would_be_ignored(self, config, cache):
        config = dataclasses.replace(config, attribute='gender')
        self.refused(config, cache, "config.data.attribute: is 'gender'.*to ''")

    def test_a_directory_that_cannot_be_made(self, config, tmp_path):
        (tmp_path / 'file').touch()
        self.refused(config, tmp_path / 'file' / 'data', 'cannot be written')

    def test_a_directory_of_something_else_is_left_alone(self, config, cache):
        cache.mkdir(parents=True)
        (cache / 'thesis.tex').touch()
        with pytest.raises(UserError, match='holds no prepared data'):
            data.prepare(config, cache)
        assert [p.name for p in cache.parent.rglob('*')] == ['data', 'thesis.tex']

    def test_too_little_free_space_is_found_out_before_decoding(
        self, config, cache, monkeypatch
    ):
        usage = shutil.disk_usage('/')._replace(free=20 * 8 * 8 - 1)
        monkeypatch.setattr(shutil, 'disk_usage', lambda path: usage)
        self.refused(config, cache, 'cannot be written .*GB.*Free space')

    def test_a_disk_that_fills_up_while_writing(self, cache):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            self.refused(make_config(image_size=32), cache, 'data: cannot be written')
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestLoad:
    def test_nothing_prepared(self, config, cache):
        assert data.read_manifest(cache) is None
        with pytest.raises(UserError, match=r'holds no prepared data. Run the prepare'):
            data.load(config, cache)

    @pytest.mark.parametrize(
        'name',
        [f'{s}_{w}.npy' for s in ('train', 'test') for w in ('images', 'labels')],
    )
    @pytest.mark.parametrize(
        'damage', ['missing', 'empty', 'short', 'garbled', 'other']
    )
    def test_a_damaged_array_is_named_with_the_remedy(
        self, config, cache, name, damage
    ):
        data.prepare(config, cache)
        path = cache / name
        content = path.read_bytes()
        path.unlink()
        if damage == 'other':
            np.save(path, np.zeros((3, 8, 8, 1), np.uint8))
        elif damage != 'missing':
            changed = {'empty': b'', 'short': content[:-1], 'garbled': b'x' + content}
            path.write_bytes(changed[damage])
        with pytest.raises(
            UserError, match=f'{name}: is damaged.*Delete the directory'
        ):
            data.load(config, cache)

    @pytest.mark.parametrize(
        'damage',
        [
            lambda text: text[:-5],
            lambda text: '[]',
            lambda text: json.dumps(json.loads(text) | {'extra': 1}),
            lambda text: json.dumps(json.loads(text) | {'num_examples': 14.0}),
            lambda text: json.dumps(json.loads(text) | {'checksum': None}),
            lambda text: json.dumps(json.loads(text) | {'num_test': -1}),
            lambda text: json.dumps(json.loads(text) | {'class_names': ['0']}),
            lambda text: text.replace('"attribute"', '"atribute"'),
        ],
    )
    def test_a_damaged_manifest_is_named_with_the_remedy(self, config, cache, damage):
        data.prepare(config, cache)
        path = cache / 'manifest.json'
        path.write_text(damage(path.read_text()))
        for use in (data.prepare, data.load):
            with pytest.raises(UserError, match=r'manifest.json: is damaged.*Delete'):
                use(config, cache)


IMAGES = np.zeros((1500, 8, 8), np.uint8)


class TestDecoding:
    def test_images_are_streamed_in_order(self):
        read: list[int] = []

        def contents() -> Iterator[np.ndarray]:
            for i in range(1000):
                read.append(i)
                yield np.full((8, 8), i % 256, np.uint8)

        labels = np.zeros(1000, int)
        source = Source('x', ('0',), labels, str, None, contents)
        images = decoded(source, make_config(image_size=8))
        next(images)
        assert len(read) < 100, 'ten million images must not be in memory at once'
        rest = [int(image[0, 0, 0]) for image in images]
        assert rest == [i % 256 for i in range(1, 1000)]

    def test_what_is_told_on_the_way_says_nothing_of_a_record(self, monkeypatch):
        """Such as whether a filter has emptied it."""
        told: list[str] = []
        monkeypatch.setattr(
            decode, 'PATIENCE', -1.0
        )  # else no more than begins in time
        monkeypatch.setattr(
            decode.logging, 'info', lambda text, *given: told.append(text % given)
        )
        for emptied in (range(0), range(990, 2010)):
            told.clear()
            present = np.ones(3000, bool)
            present[emptied] = False
            images = np.zeros((np.sum(present), 8, 8), np.uint8)
            labels = np.zeros(3000, int)
            source = Source('x', ('0',), labels, str, None, lambda i=images: iter(i))
            source = dataclasses.replace(source, is_empty=~present)
            assert len(list(decoded(source, make_config(image_size=8)))) == len(images)
            shares = [f'Decoded {share} %' for share in (0, 33, 66)]
            assert told == [*shares, 'Decoded all pictures']

    def test_a_quick_source_is_decoded_without_a_word(self, monkeypatch):
        told: list[str] = []
        monkeypatch.setattr(decode.logging, 'info', lambda *said: told.append(said))
        source = Source(
            'x', ('0',), np.zeros(1500, int), str, None, lambda: iter(IMAGES)
        )
        assert len(list(decoded(source, make_config(image_size=8)))) == 1500
        assert not told

    def test_what_pillow_remarks_of_a_picture_is_not_told(self):
        """Its size, for one; in a process of its own, since pytest listens to warnings."""
        code = (
            'import io; from PIL import Image; from dpaf_jax.data.pixels import to_pixels;'
            'Image.MAX_IMAGE_PIXELS = 100; content = io.BytesIO();'
            'Image.new("L", (12, 12)).save(content, "PNG");'
            'to_pixels(content.getvalue(), 8, 1, "crop")'
        )
        ended = tiny_runs.run_python('-W', 'always', '-c', code)
        assert (ended.returncode, ended.stderr) == (0, '')


class Fixed:
    """Coins that fall as they are told."""

    def __init__(self, places: tuple[int, ...]):
        self._places = places

    def permutation(self, number: int) -> np.ndarray:
        assert number == len(self._places)
        return np.array(self._places)


class TestPlaces:
    """Where records stand among all N."""

    def test_they_are_distinct_and_any_of_the_n(self, config, cache):
        data.prepare(config, cache)
        dataset = data.load(dataclasses.replace(config, num_examples=20), cache)
        first = np.zeros(20, int)
        for seed in range(2000):
            placed = dataset.placed(np.random.default_rng(seed))
            assert len({*placed.index.tolist()} & {*range(20)}) == 14
            assert placed.images is dataset.images
            first[placed.index[0]] += 1
        assert stats.chisquare(first).pvalue > 1e-4

    def test_without_a_picture_the_others_have_the_same_places_in_law(self, tmp_path):
        # All outcomes of the coins: who has lost the picture in front has all others one
        # place further up in the list.
        places, number = [], 5
        for name in ('whole', 'rest'):
            for i in range(name == 'rest', 4):
                for folder in ('train', 'test'):
                    path = tmp_path / name / folder / 'class' / f'{i}.png'
                    path.parent.mkdir(parents=True, exist_ok=True)
                    Image.new('L', (8, 8), 10 * i).save(path)
            asked = make_config(
                source=f'folder:{tmp_path / name}',
                image_size=8,
                num_classes=1,
                num_examples=number,
            )
            data.prepare(asked, tmp_path / f'{name} prepared')
            dataset = data.load(asked, tmp_path / f'{name} prepared')
            where = [
                dataset.placed(Fixed(x)).index
                for x in itertools.permutations(range(number))
            ]
            places.append(collections.Counter(tuple(x[-3:].tolist()) for x in where))
        assert places[0] == places[1] and len(places[0]) == 60
