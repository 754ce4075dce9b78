"""The papers' further data sets, a few records each in the real layout, by their configs."""

import csv
import dataclasses
import pathlib

import numpy as np
import pytest
import tiny_runs
from sources import encode, pixels_of, prepared, refused

from dpaf_jax.config import DataConfig, from_config_dict

TFDS = {'svhn': 'svhn_cropped', 'cifar10': 'cifar10', 'lsun_bedroom': 'lsun/bedroom'}
TRAIN, HELD_BACK = 30, 10


def prepare_tfds(name: str, root: pathlib.Path) -> None:
    """As `tfds build` leaves it: its own features and splits, but our pictures."""
    tfds = pytest.importorskip('tensorflow_datasets')
    short, _, part = name.partition('/')
    original = tfds.builder_cls(short)
    sides = {'train': TRAIN, 'validation' if part else 'test': HELD_BACK}

    class Tiny(original, skip_registration=True):
        name = short
        pkg_dir_path = root
        url_infos = {}  # noqa: RUF012 (in place of a property of the original)

        def _split_generators(self, dl_manager):
            return {side: self.records(number) for side, number in sides.items()}

        def records(self, number):
            for i in range(number):
                side = 32 if not part else 40 + i % 3
                record = {'image': encode(pixels_of(i, side, side), self.form)}
                if 'label' in self.info.features:
                    record['label'] = i % 10
                if 'id' in self.info.features:
                    record['id'] = f'train_{i:05d}'
                yield i, record

        form = 'JPEG' if part else 'PNG'

    more = {'config': part} if part else {}
    Tiny(data_dir=root, file_format='array_record', **more).download_and_prepare()


def section(name: str, source: str, argument: str = '') -> DataConfig:
    """A config's own data section with another place and no public N."""
    config = from_config_dict(tiny_runs.load_config(name, argument))
    return dataclasses.replace(config.data, source=source, num_examples=0)


@pytest.mark.parametrize('name', ['svhn', 'cifar10'])
def test_colour_in_ten_classes(name, tmp_path):
    prepare_tfds(TFDS[name], tmp_path)
    dataset = prepared(section(name, f'tfds:{TFDS[name]}@{tmp_path}'), tmp_path)
    assert dataset.images.shape == (TRAIN, 32, 32, 3)
    assert dataset.test_images.shape == (HELD_BACK, 32, 32, 3)
    expected = {pixels_of(i, 32, 32).tobytes(): i % 10 for i in range(TRAIN)}
    for image, label in zip(dataset.images, dataset.labels, strict=True):
        assert expected[np.asarray(image).tobytes()] == label


def test_bedrooms_have_no_label_and_are_one_class(tmp_path):
    prepare_tfds(TFDS['lsun_bedroom'], tmp_path)
    config = section('lsun_bedroom', f'tfds:lsun/bedroom@{tmp_path}')
    some = dataclasses.replace(config, test_fraction=0.3)
    dataset = prepared(some, tmp_path)
    assert len(dataset.images) + len(dataset.test_images) == TRAIN
    assert dataset.images.shape[1:] == (64, 64, 3) and not dataset.labels.any()
    two = dataclasses.replace(some, num_classes=2)
    refused(two, tmp_path / 'x', 'no feature called label.*num_classes=1')


def test_faces_of_32_pixels(tmp_path):
    for argument, classes in (('gender', 2), ('hair', 3)):
        source = tiny_runs.write_celeba(tmp_path / argument)
        dataset = prepared(section('celeba32', source, argument), tmp_path / argument)
        assert dataset.images.shape[1:] == (32, 32, 3)
        assert set(np.unique(dataset.labels)) == set(range(classes))


def write_credit(path: pathlib.Path) -> np.ndarray:
    """creditcard.csv as Kaggle has it: 31 columns, quoted names and classes; [N, 29]."""
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(0, 3, (40, 28)), rng.exponential(400, 40)])
    values[3, 16] = -25.2
    with path.open('w', encoding='utf-8') as file:
        components = [f'V{i}' for i in range(1, 29)]
        names = ['Time', *components, 'Amount', 'Class']
        file.write(','.join(f'"{name}"' for name in names) + '\n')
        for i, row in enumerate(values):
            numbers = [str(i), *(f'{x:.15g}' for x in row)]
            file.write(','.join([*numbers, f'"{int(i % 4 == 0)}"']) + '\n')
    return values


def test_credit_cards_have_29_numbers_between_public_bounds(tmp_path):
    values = write_credit(tmp_path / 'creditcard.csv')
    config = section('credit', f'table:{tmp_path / "creditcard.csv"}')
    assert [column.name for column in config.table][::28] == ['V1', 'Amount']
    dataset = prepared(config, tmp_path)
    rows = np.concatenate([dataset.images, dataset.test_images]).reshape(-1, 29)
    assert len(rows) == 40
    scaled = np.column_stack([(values[:, :28] + 10) / 20, values[:, 28] / 1000])
    expected = np.clip(scaled, 0, 1).astype(np.float32)
    found, wanted = (x[np.lexsort(x.T)] for x in (rows, expected))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    labels = [*dataset.labels, *dataset.test_labels]
    assert sorted(labels) == [0] * 30 + [1] * 10


def test_credit_cards_without_a_column_are_refused(tmp_path):
    path = tmp_path / 'creditcard.csv'
    write_credit(path)
    with path.open(newline='', encoding='utf-8') as file:
        rows = [[*row[:5], *row[6:]] for row in csv.reader(file)]
    with path.open('w', newline='', encoding='utf-8') as file:
        csv.writer(file).writerows(rows)
    refused(section('credit', f'table:{path}'), tmp_path / 'x', 'no column V5')
