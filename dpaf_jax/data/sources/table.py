"""table:<path>: rows of numbers with a label, from a CSV file or an npz archive."""

import csv
import pathlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from dpaf_jax.config import Column, DataConfig
from dpaf_jax.data.sources.attributes import check_attribute
from dpaf_jax.data.sources.base import Source, counting_names, existing
from dpaf_jax.runtime.errors import UserError

NUMBER_LABELS = 'Write the labels as integers 0 .. num_classes - 1'
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError)


def open_source(path: str, config: DataConfig) -> Source:
    """Reads the columns that the config names; others are left out.

    CSV: a line of names, then a line a record. npz: one array [N] a column, by its name.
    What lies outside a column's public bounds is moved to them; nothing is scaled by what
    the data hold. A record's id is its place.

    Args:
        path: of the .csv or .npz file.
        config: the data section of the config.

    Raises:
        UserError: a column is missing, a value is no number, a label no integer, or the
            file is damaged. No message quotes a value.
    """
    check_attribute(config)
    file = existing(path, 'config.data.source')
    names = [column.name for column in config.table]
    if config.label in names:
        problem = f'is {config.label!r}, which config.data.columns has too'
        raise UserError('config.data.label', problem, 'Name it in one of them')
    read = _from_npz if file.suffix == '.npz' else _from_csv
    *values, labels = read(file, [*names, config.label])
    rows = np.stack(
        [_scaled(x, c) for x, c in zip(values, config.table, strict=True)], axis=1
    )
    return Source(
        where=str(file),
        class_names=counting_names(config.num_classes),
        labels=_whole(file, labels, config.label),
        record_id=lambda i: f'row[{i}]',
        is_test=None,
        contents=lambda: iter(rows),
    )


def _scaled(values: np.ndarray, column: Column) -> np.ndarray:
    """[N] float32: 0 and 1 at the bounds."""
    cut = np.clip(values, column.low, column.high)
    return ((cut - column.low) / (column.high - column.low)).astype(np.float32)


def _whole(file: pathlib.Path, labels: np.ndarray, name: str) -> np.ndarray:
    if np.any(labels != np.rint(labels)):
        raise UserError(
            str(file), f'the column {name} holds other than integers', NUMBER_LABELS
        )
    return labels.astype(np.int64)


def _from_csv(file: pathlib.Path, names: Sequence[str]) -> list[np.ndarray]:
    try:
        with file.open(newline='', encoding='utf-8-sig') as lines:
            reader = csv.reader(lines)
            header = [name.strip() for name in next(reader, [])]
            _require(file, names, header)
            places = [header.index(name) for name in names]
            rows = list(_numbers(file, reader, names, places))
    except (UnicodeDecodeError, csv.Error):  # whose text quotes the file's
        remedy = 'Save it as comma-separated UTF-8 text'
        raise UserError(str(file), 'is not a table', remedy) from None
    if not rows:
        raise UserError(str(file), 'has no rows', 'Name a table of records')
    return list(np.array(rows).T)


def _numbers(
    file: pathlib.Path,
    reader: Iterator[list[str]],
    names: Sequence[str],
    places: list[int],
) -> Iterator[list[float]]:
    for number, row in enumerate(reader, start=2):
        if not row:
            continue
        values = []
        for name, place in zip(names, places, strict=True):
            try:
                value = float(row[place])
            except (ValueError, IndexError):
                value = np.nan
            if not np.isfinite(value) and name == names[-1]:
                problem = f'line {number} has no number in column {name}, the labels'
                raise UserError(str(file), problem, NUMBER_LABELS)
            if not np.isfinite(value):
                raise _no_number(file, f'line {number}', name)
            values.append(value)
        yield values


def _from_npz(file: pathlib.Path, names: Sequence[str]) -> list[np.ndarray]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            _require(file, names, archive.files)
            arrays = [archive[name].astype(np.float64) for name in names]
    except _DAMAGE as error:
        raise UserError(
            str(file), 'is damaged, or its columns are no numbers', 'Save it again'
        ) from error
    if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1:
        problem = 'has columns that are not of one length'
        raise UserError(str(file), problem, 'Save an array [N] for each')
    for name, array in zip(names, arrays, strict=True):
        if not np.all(np.isfinite(array)):
            raise _no_number(file, 'some row', name)
    return arrays


def _require(file: pathlib.Path, names: Sequence[str], there: Sequence[str]) -> None:
    for name in names:
        if name not in there:
            remedy = f'It has {", ".join(there)}; see config.data.columns and label'
            raise UserError(str(file), f'has no column {name}', remedy)
        if there.count(name) > 1:
            problem = f'has {there.count(name)} columns called {name}'
            raise UserError(str(file), problem, 'Give each a name of its own')


def _no_number(file: pathlib.Path, where: str, name: str) -> UserError:
    return UserError(
        str(file), f'{where} has no finite number in column {name}', 'Fill it in'
    )
