"""Pictures that belong together: one of each group takes part, whole groups change sides."""

import csv
import dataclasses
import functools
import pathlib
from typing import Any

import numpy as np
import pytest
from sources import make_config, pixels_of, prepared, refused, rows, write_picture

from dpaf_jax import methods
from dpaf_jax.config import DataConfig, defaults, from_config_dict
from dpaf_jax.data.checks import splits
from dpaf_jax.data.groups import one_of_each
from dpaf_jax.data.sources import open_source
from dpaf_jax.data.survey import survey
from dpaf_jax.privacy.plan import NEIGHBORS, ONE_GROUP, REPLACE_ONE
from dpaf_jax.runtime.errors import UserError

PERSONS, EACH = 30, 4


def config(root: pathlib.Path, **changes: Any) -> DataConfig:
    fields: dict[str, Any] = {
        'source': f'folder:{root}',
        'image_size': 8,
        'channels': 3,
        'num_classes': 2,
        'test_fraction': 0.4,
        'group': r'p(\d+)_',
    }
    return make_config(**(fields | changes))


def number(person: int, picture: int) -> int:
    return person * EACH + picture


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """Thirty persons, four pictures of each, in both classes."""
    root = tmp_path / 'pictures'
    for person in range(PERSONS):
        for k in range(EACH):
            name = f'p{person:02d}_{k}.png'
            write_picture(root / ('cat', 'dog')[k % 2] / name, number(person, k))
    return root


def owners(images: np.ndarray) -> list[int]:
    """Whose pictures these are."""
    known = {
        pixels_of(number(p, k)).tobytes(): p
        for p in range(PERSONS)
        for k in range(EACH)
    }
    return [known[image.tobytes()] for image in images]


def test_one_picture_of_a_person_and_no_person_on_both_sides(root, tmp_path):
    found = prepared(config(root), tmp_path)
    train, test = owners(found.images), owners(found.test_images)
    assert len(set(train)) == len(train)
    assert not set(train) & set(test)
    assert len(train) + len(set(test)) == PERSONS
    assert len(test) == EACH * len(set(test))
    assert set(found.labels) == {0, 1}


def training_set(found: DataConfig) -> set[bytes]:
    """The records that mechanisms see, before they are decoded."""
    source = one_of_each(open_source(found), found)
    pairs = zip(source.contents(), splits(source, found), strict=True)
    return {content for content, is_test in pairs if not is_test}


def changes_by_person(root: pathlib.Path, found: DataConfig) -> list[int]:
    """How many training records go when a person goes with all pictures; none comes."""
    before, changes = training_set(found), []
    for person in range(PERSONS):
        hidden = {path: path.read_bytes() for path in root.rglob(f'p{person:02d}_*')}
        for path in hidden:
            path.unlink()
        after = training_set(found)
        assert after <= before
        changes.append(len(before) - len(after))
        for path, content in hidden.items():
            path.write_bytes(content)
    return changes


def test_a_person_who_goes_with_all_pictures_changes_one_record(root):
    """Sensitivity of the training set to a group: what makes ε one of persons."""
    changes = changes_by_person(root, config(root))
    assert set(changes) == {0, 1}
    assert sum(changes) == len(training_set(config(root)))


def test_without_groups_a_person_who_goes_changes_several_records(root):
    """The fault that the test above would find."""
    assert max(changes_by_person(root, config(root, group=''))) > 1


def test_everything_to_train_on(root, tmp_path):
    found = prepared(config(root, test_fraction=0.0), tmp_path)
    assert sorted(owners(found.images)) == list(range(PERSONS))
    assert len(found.test_images) == 0


def table(root: pathlib.Path, **columns: Any) -> None:
    """labels.csv beside the pictures; a column is a function of person and picture."""
    with open(root / 'labels.csv', 'w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['file', 'label', *columns])
        for p in range(PERSONS):
            for k in range(EACH):
                name = f'{("cat", "dog")[k % 2]}/p{p:02d}_{k}.png'
                writer.writerow(
                    [name, k % 2, *(make(p, k) for make in columns.values())]
                )


def test_a_column_of_labels_csv_says_the_same_as_a_pattern(root, tmp_path):
    by_pattern = prepared(config(root), tmp_path)
    table(root, patient=lambda p, k: f'{p:02d}')
    (tmp_path / 'again').mkdir()
    by_column = prepared(config(root, group='patient'), tmp_path / 'again')
    assert rows(by_column.images) == rows(by_pattern.images)
    assert rows(by_column.test_images) == rows(by_pattern.test_images)


def test_the_survey_counts_groups(root):
    found = survey(config(root))
    assert found.num_train + found.num_test == sum(found.counts)
    left_out = PERSONS * EACH - sum(found.counts)
    assert found.notes[-1] == (
        f'{found.num_train} groups to train on, one picture of each: '
        f'{left_out} pictures take no part'
    )


def test_a_person_in_both_splits_is_refused(root, tmp_path):
    table(root, patient=lambda p, k: p, split=lambda p, k: ('train', 'test')[k == 3])
    # Neither a name nor a number: a log is not for the owner's eyes alone.
    told = 'has pictures of one group in both splits. Put each'
    refused(config(root, group='patient'), tmp_path, told)


def test_a_split_of_persons_is_taken(root, tmp_path):
    table(root, patient=lambda p, k: p, split=lambda p, k: ('train', 'test')[p < 5])
    found = prepared(config(root, group='patient'), tmp_path)
    assert sorted(owners(found.images)) == list(range(5, PERSONS))
    assert len(found.test_images) == 5 * EACH


@pytest.mark.parametrize(
    ('group', 'told'),
    [
        ('patient', "is 'patient', a column, which"),
        (r'q(\d+)_', 'names no group in'),
        (r'(x?)p', 'names no group in'),
    ],
)
def test_groups_that_are_none_are_refused(root, tmp_path, group, told):
    refused(config(root, group=group), tmp_path, told)


def test_a_column_that_is_not_there_and_a_cell_without_a_name(root, tmp_path):
    table(root, patient=lambda p, k: p or '')
    refused(config(root, group='person'), tmp_path, "is 'person', which is no column")
    told = 'line 2: has nothing in the column patient'
    refused(config(root, group='patient'), tmp_path, told)
    told = "is 'label', the column of something else"
    refused(config(root, group='label'), tmp_path, told)


def test_a_name_with_a_blank_behind_it_is_no_other_group(root, tmp_path):
    table(root, patient=lambda p, k: f'{p}{" " * (k == 1)}')
    told = 'has a blank at an end of the column patient. Correct'
    refused(config(root, group='patient'), tmp_path, told)


@pytest.mark.parametrize('group', ['(', '(a)(b)', '(?:a)'])
def test_patterns_that_are_none(group):
    fields = defaults()
    fields.data.source, fields.data.group = 'folder:x', group
    with pytest.raises(UserError, match=r'config\.data\.group: is'):
        from_config_dict(fields)


@pytest.mark.parametrize('source', ['digits', 'npz:x.npz', 'tfds:mnist'])
def test_records_without_names_have_no_groups(source):
    fields = defaults()
    fields.data.source, fields.data.group = source, '([0-9]+)'
    with pytest.raises(UserError, match='known by their place alone'):
        from_config_dict(fields)


def test_the_documented_pattern_reads_the_name_of_the_file_alone(tmp_path):
    root = tmp_path / 'pictures'
    for name in (
        'no_mask/p07_1.png',
        'mask/p07_2.png',
        'mask/p08_1.png',
        'mask/p09.x_1.png',
    ):
        write_picture(root / name, len(name))
    found = config(root, test_fraction=0.0, group='([^/_]*)_[^/]*$')
    assert len(training_set(found)) == 3


def test_the_plan_says_whose_epsilon_it_is():
    fields = defaults()
    fields.data.source = 'folder:x'
    fields.method, fields.privacy.epsilon = 'dp_merf', 10.0
    own = methods.plan(from_config_dict(fields), 2000)
    assert own.neighbors.startswith('zero-out: one image with its label against')
    fields.data.group = '(.*)_'
    groups = methods.plan(from_config_dict(fields), 2000)
    assert groups.neighbors.startswith(
        'zero-out: all images of one group, of which at most'
    )
    assert dataclasses.replace(groups, neighbors=own.neighbors) == own


@functools.cache
def default_plan():
    return methods.plan(from_config_dict(defaults()), 2000)


@pytest.mark.parametrize('relation', [NEIGHBORS, REPLACE_ONE])
def test_every_relation_can_be_stated_of_groups(relation):
    groups = methods._of_groups(dataclasses.replace(default_plan(), neighbors=relation))
    assert ONE_GROUP in groups.neighbors


def test_a_relation_in_other_words_is_not_passed_on_as_one_of_groups():
    reworded = dataclasses.replace(default_plan(), neighbors='add-or-remove: a picture')
    with pytest.raises(ValueError, match='does not stand in .*a picture'):
        methods._of_groups(reworded)
