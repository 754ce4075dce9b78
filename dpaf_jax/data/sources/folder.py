"""folder:<path>: class sub-folders, or pictures and a labels.csv."""

import collections
import csv
import pathlib
import posixpath
import re

import numpy as np

from dpaf_jax.config import MOST_CLASSES, DataConfig
from dpaf_jax.data.sources.attributes import check_attribute
from dpaf_jax.data.sources.base import Source, counting_names, existing
from dpaf_jax.data.sources.listing import (
    SUFFIXES,
    list_folders,
    list_others,
    list_pictures,
    read_pictures,
)
from dpaf_jax.runtime.errors import UserError

# Names of splits; of those with test images the first that is there counts.
_HELD_OUT = 'test', 'valid', 'validation', 'val', 'dev'
_TRAIN, _TEST = ('train', 'training'), (*_HELD_OUT, 'testing')  # in any case of letters
TABLE = 'labels.csv'
_LAYOUT = 'Give a folder with one sub-folder a class, or with pictures and a labels.csv'


def open_source(path: str, config: DataConfig) -> Source:
    """Lists the pictures of a folder, in one of two layouts.

    - `labels.csv`, where there is one: columns file (relative to the folder), label
      (numbers 0 .. num_classes - 1, or names, numbered in their sorted order) and,
      if wanted, split (train or test) and a column that `config.group` names. A file must
      not be listed twice: one person would then be two records.
    - Otherwise class sub-folders, labelled in the order of their sorted names,
      directly in the folder or in its `train/` and, if there is one, `test/` (or
      `valid/`, `validation/`, `val/` or `dev/`).

    Where nothing says what the test split is, a hash of the path relative to the
    folder does.

    Args:
        path: of the folder.
        config: the data section of the config.

    Raises:
        UserError: neither layout, no pictures, a bad row or a missing file, splits in
            place of classes.
    """
    check_attribute(config)
    root = existing(path, 'config.data.source')
    if not root.is_dir():
        raise UserError('config.data.source', f'names {root}, a file', _LAYOUT)
    table = root / TABLE
    listed = _from_table(table, config) if table.exists() else _from_folders(root)
    names, labels, class_names, is_test, groups = listed
    if not names:
        raise UserError(str(root), _nothing(root, table.exists()), _LAYOUT)
    return Source(
        where=str(root),
        class_names=class_names,
        labels=np.array(labels, np.int64),
        record_id=names.__getitem__,
        is_test=None if is_test is None else np.array(is_test, bool),
        contents=lambda: read_pictures(root, names),
        groups=groups,
        notes=_notes(root, names, class_names, table.exists()),
    )


_Listed = tuple[
    list[str],
    list[int],
    tuple[str, ...],
    list[bool] | None,  # of the test split
    tuple[str, ...] | None,  # groups
]


def _nothing(root: pathlib.Path, has_table: bool) -> str:
    """What is wrong with a folder that lists no picture."""
    if has_table:
        return f'lists no pictures in {TABLE}'
    loose = len(list(list_pictures(root)))
    if not loose:
        others = {pathlib.PurePath(name).suffix for name in list_others(root)}
        shown = ', '.join(sorted(others - {''})[:3])
        read = ', '.join(suffix[1:] for suffix in SUFFIXES)
        kinds = f' of a kind that is read ({read}), but files in {shown}'
        return 'holds no pictures' + (kinds if shown else '')
    return f'holds {loose} picture{"s" if loose > 1 else ""}, but no classes'


def _from_folders(root: pathlib.Path) -> _Listed:
    top = list_folders(root)
    # A class may be called 'train': then its pictures are directly in it.
    is_split = 'train' in top and list_folders(root / 'train') != []
    held_out = next((name for name in _HELD_OUT if name in top), '')
    called = {name.casefold() for name in top}
    if not is_split and called & set(_TEST) and called <= {*_TRAIN, *_TEST}:
        nested = any(list_folders(root / name) for name in top)
        problem = f'has the folders {", ".join(top)}: splits'
        if nested:
            remedy = 'Call them train and test: else they would be taken for classes'
            raise UserError(str(root), f'{problem} by their names', remedy)
        raise UserError(str(root), f'{problem}, and no classes in them', _LAYOUT)
    sides = [side for side in ('train', held_out) if side] if is_split else ['']
    class_names = list_folders(root / sides[0])
    names, labels, is_test = [], [], []
    for side in sides:
        for folder in list_folders(root / side):
            if folder not in class_names:
                problem = f'has the class {folder}, which train/ lacks'
                raise UserError(str(root / side), problem, 'Use the same classes')
            below = '/'.join(part for part in (side, folder) if part)
            for name in list_pictures(root / below):
                names.append(f'{below}/{name}')
                labels.append(class_names.index(folder))
                is_test.append(side == held_out)
    is_held_out = is_test if len(sides) > 1 else None
    return names, labels, tuple(class_names), is_held_out, None


def _notes(
    root: pathlib.Path, names: list[str], class_names: tuple[str, ...], has_table: bool
) -> tuple[str, ...]:
    """What is in the folder and was not taken, or not taken for what it may be."""
    notes, taken = [], set(names)
    if left := [name for name in list_pictures(root) if name not in taken]:
        where = (
            'without a row in labels.csv' if has_table else 'in no folder of a class'
        )
        notes.append(f'{len(left)} pictures {where} passed over, such as {left[0]}')
    suffixes = collections.Counter(
        pathlib.PurePath(name).suffix for name in list_others(root) if name != TABLE
    )
    if suffixes:
        each = ', '.join(
            f'{suffix or "no suffix"} {suffixes[suffix]}' for suffix in sorted(suffixes)
        )
        notes.append(f'files passed over, by their names no pictures: {each}')
    if not has_table and len(class_names) > 1:
        below = [
            set(list_folders(root / name))
            for name in class_names
            if (root / name).is_dir()
        ]
        if common := sorted(set.intersection(*below)) if below else []:
            notes.append(
                f'every class has a folder {common[0]}: if that is a class, and '
                f'{class_names[0]} a site or a part, write a labels.csv'
            )
    return tuple(notes)


def _from_table(table: pathlib.Path, config: DataConfig) -> _Listed:
    column = '' if '(' in config.group else config.group
    rows = _rows(table, column)
    names = [row['file'] for row in rows]
    texts = [row['label'] for row in rows]
    if all(_is_number(text) for text in texts):
        labels = [int(text) for text in texts]
        if max(labels, default=0) > MOST_CLASSES:
            name = names[labels.index(max(labels))]
            raise UserError(
                str(table),
                f'the label of {name} is above {MOST_CLASSES}',
                'Number classes from 0, or give them names',
            )
        class_names = counting_names(config.num_classes)
    else:
        class_names = tuple(sorted(set(texts)))
        number = {name: i for i, name in enumerate(class_names)}
        labels = [number[text] for text in texts]
    # By the column, not by what is in it: one row would decide for all others.
    is_test = None
    if any('split' in row for row in rows):
        is_test = [row['split'] == 'test' for row in rows]
    groups = tuple(row[column] for row in rows) if column else None
    return names, labels, class_names, is_test, groups


def _is_number(text: str) -> bool:
    return re.fullmatch(r'[+-]?[0-9]+', text.strip()) is not None


def _rows(table: pathlib.Path, group: str) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    seen: set[str] = set()
    try:
        with open(table, encoding='utf-8-sig', newline='') as file:
            head = file.readline()
            file.seek(0)
            mark = ';' if ';' in head and ',' not in head else ','
            reader = csv.DictReader(file, delimiter=mark, skipinitialspace=True)
            if not {'file', 'label'} <= set(reader.fieldnames or ()):
                remedy = 'Its first line must be: file,label or file,label,split'
                raise UserError(str(table), 'lacks the columns file and label', remedy)
            names = list(reader.fieldnames or ())
            if twice := sorted(name for name in set(names) if names.count(name) > 1):
                problem = f'has the column {twice[0]} twice'
                raise UserError(str(table), problem, 'Name each column once')
            if group and group not in names:
                remedy = 'Name one of its columns, or a pattern with parentheses'
                problem = f'is {group!r}, which is no column of {table}'
                raise UserError('config.data.group', problem, remedy)
            for row in reader:
                if row['file']:  # './a.png' is 'a.png'
                    row['file'] = posixpath.normpath(row['file'])
                problem = _row_problem(row, seen, table.parent, group)
                if problem:
                    where = f'{table}, line {reader.line_num}'
                    raise UserError(where, problem, 'Correct the line')
                seen.add(row['file'])
                rows.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        remedy = 'Save it as comma-separated UTF-8 text'
        raise UserError(str(table), f'is not a table ({error})', remedy) from error
    return rows


def _row_problem(
    row: dict[str, str], seen: set[str], root: pathlib.Path, group: str
) -> str:
    if not row['file'] or not row['label']:
        return 'has no file or no label'
    if group and not row[group]:
        return f'has nothing in the column {group}'
    if group and row[group] != row[group].strip():
        return f'has a blank at an end of the column {group}'
    if row.get('split', 'train') not in ('train', 'test'):
        return 'has a split other than train and test'
    if row['file'] in seen:
        return f'lists {row["file"]} a second time'
    if posixpath.isabs(row['file']) or row['file'].split('/')[0] == '..':
        return f'names {row["file"]}, outside the folder'
    if not (root / row['file']).is_file():
        return f'names {row["file"]}, which does not exist'
    return ''
