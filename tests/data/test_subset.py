"""A part of the training records: which ones, that the others leave no trace, and N."""

import dataclasses
import pathlib

import numpy as np
import pytest
import tiny_runs
from sources import make_config

from dpaf_jax import data
from dpaf_jax.config import DataConfig
from dpaf_jax.data.subset import SEED, permutation
from dpaf_jax.data.survey import survey
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.runtime.errors import UserError

LISTED, PART = 14, 5


def arrays(**more: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    usual = {
        'train_x': rng.integers(0, 256, (LISTED, 8, 8), np.uint8),
        'train_y': np.arange(LISTED) % 2,
        'test_x': rng.integers(0, 256, (6, 8, 8), np.uint8),
        'test_y': np.arange(6) % 2,
    }
    return usual | more


def saved(path: pathlib.Path, content: dict[str, np.ndarray], **fields) -> DataConfig:
    np.savez(path, **content)
    usual = {'image_size': 8, 'num_classes': 2, 'subset': PART}
    return make_config(source=f'npz:{path}', **{**usual, **fields})


@pytest.fixture
def config(tmp_path) -> DataConfig:
    return saved(tmp_path / 'whole.npz', arrays())


def taken() -> np.ndarray:
    return np.sort(permutation(LISTED, SEED)[:PART])


@pytest.mark.parametrize(('seed', 'order'), [
    (0, [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]),
    (1, [5, 6, 1, 2, 0, 8, 9, 3, 7, 4]),
    (42, [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]),
])  # fmt: skip
def test_the_permutation_is_pytorchs(seed, order):
    """torch.manual_seed(seed); torch.randperm(10).tolist()"""
    assert permutation(10, seed).tolist() == order


def test_the_part_is_the_first_of_the_permutation_and_all_test_records(
    config, tmp_path
):
    manifest = data.prepare(config, tmp_path / 'made')
    found = data.load(config, tmp_path / 'made')
    np.testing.assert_array_equal(found.images[..., 0], arrays()['train_x'][taken()])
    np.testing.assert_array_equal(found.labels, arrays()['train_y'][taken()])
    np.testing.assert_array_equal(found.test_images[..., 0], arrays()['test_x'])
    assert (manifest.num_examples, manifest.num_present) == (PART, PART)


def changed_rows(tmp_path: pathlib.Path, config: DataConfig, place: int) -> list[int]:
    """The training records that change with the one at `place` of the archive."""
    content = arrays()
    content['train_x'][place] = 0
    content['train_y'][place] ^= 1  # so a draw by classes would be found
    other = saved(tmp_path / f'{place}.npz', content)
    rows = []
    for each, name in ((config, 'one'), (other, 'other')):
        folder = tmp_path / f'{name}{place}'
        data.prepare(each, folder)
        found = data.load(each, folder)
        flat = found.images.reshape(len(found.images), -1)
        rows.append(np.column_stack([found.labels, flat]))
    return np.flatnonzero(np.any(rows[0] != rows[1], axis=1)).tolist()


def test_a_record_that_is_emptied_in_its_place_changes_itself_or_nothing(
    config, tmp_path
):
    """Sensitivity of the training set: what makes N and epsilon those of the part."""
    for place in range(LISTED):
        changed = changed_rows(tmp_path, config, place)
        assert changed == np.flatnonzero(taken() == place).tolist()


@pytest.mark.parametrize('number', [PART, PART + 3])
def test_n_is_that_of_the_part_or_larger(config, tmp_path, number):
    stated = dataclasses.replace(config, num_examples=number)
    assert data.prepare(stated, tmp_path / 'made').num_examples == PART


def test_an_n_below_the_part_is_refused(config, tmp_path):
    stated = dataclasses.replace(config, num_examples=PART - 1)
    with pytest.raises(UserError, match='num_examples: is 4, but there are more'):
        data.prepare(stated, tmp_path / 'made')


def test_more_than_there_are_is_refused_without_saying_how_many(config, tmp_path):
    more = dataclasses.replace(config, subset=LISTED + 1)
    with pytest.raises(UserError, match=r'subset: is 15, but .* has fewer') as raised:
        data.prepare(more, tmp_path / 'made')
    assert str(LISTED) not in str(raised.value).replace(str(tmp_path), '')
    whole = dataclasses.replace(config, subset=LISTED)
    assert data.prepare(whole, tmp_path / 'made').num_examples == LISTED


def test_images_that_were_prepared_of_another_part_are_refused(config, tmp_path):
    data.prepare(config, tmp_path / 'made')
    with pytest.raises(UserError, match=r'subset = 5 \(asked: 0\)'):
        data.prepare(dataclasses.replace(config, subset=0), tmp_path / 'made')


def test_a_hash_split_stays_as_it_is(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (40, 8, 8), np.uint8)
    content = {'images': images, 'labels': np.arange(40) % 2}
    config = saved(tmp_path / 'x.npz', content, test_fraction=0.4)
    made = []
    for each in (config, dataclasses.replace(config, subset=0)):
        folder = tmp_path / f'of {each.subset}'
        data.prepare(each, folder)
        made.append(data.load(each, folder))
    part, whole = made
    np.testing.assert_array_equal(part.test_images, whole.test_images)
    assert len(part.images) == PART < len(whole.images)


def test_a_look_at_the_data_counts_the_part(config):
    found = survey(config)
    assert (found.num_train, found.num_test) == (PART, 6)
    assert found.notes[-1] == 'of the training records 5 take part'


def test_the_plan_is_of_the_records_that_take_part(tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    config = tiny_runs.canonical(source, data__subset=12, data__num_examples=0)
    pipeline = Pipeline(config, tmp_path / 'run')
    assert pipeline.run('prepare').num_examples == 12
    assert pipeline.run('plan').num_examples == 12


@pytest.mark.slow
@pytest.mark.parametrize('name', ['mnist', 'fashion_mnist'])
def test_dpimagebenchs_55000(data_dir, tmp_path, name):
    config = tiny_runs.load_config('recommended', f'{name},1,dpimagebench').data
    made = make_config(
        source=f'npz:{data_dir}/{name}.npz',
        **{key: config[key] for key in ('image_size', 'num_examples', 'subset')},
    )
    manifest = data.prepare(made, tmp_path / 'made')
    assert (manifest.num_examples, manifest.num_test) == (55_000, 10_000)
