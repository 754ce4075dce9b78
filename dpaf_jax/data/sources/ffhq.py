"""ffhq:<path>: FFHQ pictures, labelled by the FFHQ features JSON."""

import gzip
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.data.sources.attributes import GENDERS, check_attribute
from dpaf_jax.data.sources.base import Source, existing
from dpaf_jax.data.sources.listing import list_pictures, read_pictures
from dpaf_jax.runtime.errors import UserError

_ANNOTATIONS = 'config.data.annotations'
_REMEDY = 'Use the FFHQ features data set as it is distributed'


def open_source(path: str, config: DataConfig) -> Source:
    """Lists the pictures of which the annotations know a face.

    A record's id is its number, so the hash split is the same for a flat folder and
    for the official one of thousands. Where several faces were found, the first one
    counts; a picture with none is an empty record.

    Args:
        path: of a folder with 00000.png, 00001.png, ..., also in sub-folders.
        config: the data section; `annotations` is a folder of 00000.json files (or
            its parent, with `json/`), or one .json, .jsonl or .jsonl.gz file.

    Raises:
        UserError: a picture without a record, two with one number, or annotations
            that cannot be read.
    """
    check_attribute(config, 'gender')
    root = existing(path, 'config.data.source')
    faces_of = _open_annotations(config.annotations)
    labels: dict[int, int | None] = {}  # by number
    files: list[str] = []  # of the pictures with a face
    for name in list_pictures(root):
        number = _number(root, name)
        if number in labels:
            problem = f'holds picture {number:05d} twice'
            raise UserError(str(root), problem, f'Remove {name} or the other')
        labels[number] = _label(faces_of(number), number, config.annotations)
        if labels[number] is not None:
            files.append(name)
    if not labels:
        raise UserError(
            str(root),
            'holds no pictures',
            'Give a folder of 00000.png, 00001.png and so on',
        )
    numbers = list(labels)
    return Source(
        where=str(root),
        class_names=GENDERS,
        labels=np.array([label or 0 for label in labels.values()], np.int64),
        record_id=lambda i: f'{numbers[i]:05d}',
        is_test=None,
        contents=lambda: read_pictures(root, files),
        is_empty=np.array([label is None for label in labels.values()], bool),
    )


def _number(root: pathlib.Path, name: str) -> int:
    stem = pathlib.PurePosixPath(name).stem
    if not stem.isdecimal():
        remedy = 'Keep the names of FFHQ, such as 00000.png'
        raise UserError(str(root / name), 'is not named by a number', remedy)
    return int(stem)


def _label(faces: Any, number: int, annotations: str) -> int | None:
    try:
        gender = faces[0]['faceAttributes']['gender'] if faces else None
        return None if gender is None else GENDERS.index(gender)
    except (KeyError, TypeError, ValueError) as error:
        problem = f'record {number:05d} is malformed'
        raise UserError(annotations, problem, _REMEDY) from error


def _open_annotations(text: str) -> Callable[[int], Any]:
    if not text:
        remedy = 'Give the folder or file of the FFHQ features JSON'
        raise UserError(_ANNOTATIONS, 'is empty', remedy)
    path = existing(text, _ANNOTATIONS)
    if path.is_dir():
        folder = path / 'json' if (path / 'json').is_dir() else path
        return lambda number: _read_json(folder / f'{number:05d}.json')
    records: dict[int, Any] = {}
    for line, record in _records(path):
        try:
            number, faces = int(record['id']), record['faces']
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f'{path}, {line}', 'has no id or faces', _REMEDY) from error
        if number in records:
            problem = f'record {number:05d} is there twice'
            raise UserError(f'{path}, {line}', problem, 'Remove one')
        records[number] = faces

    def faces_of(number: int) -> Any:
        if number not in records:
            remedy = 'Complete the annotations, or remove the picture'
            raise UserError(str(path), f'has no record {number:05d}', remedy)
        return records[number]

    return faces_of


def _records(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    if path.suffix == '.json':
        content = _read_json(path)
        if isinstance(content, dict):  # {'00000': faces, ...}
            content = [{'id': key, 'faces': faces} for key, faces in content.items()]
        for i, record in enumerate(content):
            yield f'record {i}', record
        return
    opener = gzip.open if path.suffix == '.gz' else open
    number = 0
    try:
        with opener(path, 'rt', encoding='utf-8') as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f'line {number}', json.loads(line)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise UserError(
            f'{path}, line {number}', f'is not JSON ({error})', _REMEDY
        ) from error


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding='utf-8'))
    except FileNotFoundError as error:
        remedy = 'Complete the annotations, or remove the picture'
        raise UserError(str(path), 'does not exist', remedy) from error
    except ValueError as error:
        raise UserError(str(path), f'is not JSON ({error})', _REMEDY) from error
