"""celeba:<path>: aligned CelebA, a folder or a .tar, with its attribute file."""

import dataclasses
import pathlib
import tarfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.data.sources import attributes
from dpaf_jax.data.sources.base import Source, existing
from dpaf_jax.data.sources.listing import read_pictures
from dpaf_jax.runtime.errors import UserError

_IMAGES = 'img_align_celeba'
_ATTRIBUTES = 'list_attr_celeba.txt'
_PARTITION = 'list_eval_partition.txt'
_REMEDY = f'Give a folder or .tar with {_IMAGES}/ and {_ATTRIBUTES}'
_TRAIN, _TEST = '0', '2'  # in the partition file; 1 is the validation split


def open_source(path: str, config: DataConfig) -> Source:
    """Lists the faces that the attribute file names.

    With `list_eval_partition.txt` the split is the official one (its validation
    faces are left out, as `tfds:celeb_a` does); without it a hash of the file name
    decides. Hair: a face with not exactly one of black, blond and brown is empty.

    Args:
        path: of a folder (also with the official Anno/, Eval/ and Img/) or of an
            uncompressed .tar.
        config: the data section of the config; `attribute` is one of `attributes.CELEBA`.

    Raises:
        UserError: something missing or malformed, or no such attribute.
    """
    attributes.check_attribute(config, *attributes.CELEBA)
    root = existing(path, 'config.data.source')
    files = _open_folder(root) if root.is_dir() else _open_tar(root)
    flags = _read_attributes(files, config.attribute)
    partition = _read_partition(files)
    names: list[str] = []
    labels: list[int | None] = []
    is_test = []
    for name, face in flags.items():
        label = attributes.celeba_label(config.attribute, face)
        side = _TRAIN if partition is None else partition.get(name)
        if side is None:
            problem = f'has no line for {name}'
            raise UserError(f'{root}: {_PARTITION}', problem, 'Add the line')
        if side in (_TRAIN, _TEST):
            if label is not None and name not in files.names:
                problem = f'names {name}, which is not in {_IMAGES}/'
                raise UserError(
                    f'{root}: {_ATTRIBUTES}',
                    problem,
                    'Add the picture, or drop the line',
                )
            names.append(name)
            labels.append(label)
            is_test.append(side == _TEST)
    present = [n for n, label in zip(names, labels, strict=True) if label is not None]
    return Source(
        where=str(root),
        class_names=attributes.celeba_class_names(config.attribute),
        labels=np.array([label or 0 for label in labels], np.int64),
        record_id=names.__getitem__,
        is_test=None if partition is None else np.array(is_test, bool),
        contents=lambda: files.read_all(present),
        is_empty=np.array([label is None for label in labels], bool),
    )


@dataclasses.dataclass(frozen=True)
class _Files:
    root: pathlib.Path
    text: Callable[[str], str | None]
    names: Container[str]
    read_all: Callable[[Sequence[str]], Iterator[bytes]]


def _open_folder(root: pathlib.Path) -> _Files:
    places = (root / _IMAGES / _IMAGES, root / _IMAGES, root / 'Img' / _IMAGES)
    images = next((p for p in places if p.is_dir()), None)
    if images is None:
        raise UserError(str(root), f'has no {_IMAGES}/', _REMEDY)
    names = {p.name for p in images.iterdir()}

    def text(name: str) -> str | None:
        for place in (root, root / 'Anno', root / 'Eval'):
            if (place / name).is_file():
                return (place / name).read_text(encoding='utf-8', errors='replace')
        return None

    return _Files(root, text, names, lambda wanted: read_pictures(images, wanted))


def _open_tar(path: pathlib.Path) -> _Files:
    spans: dict[str, tuple[int, int]] = {}
    texts: dict[str, str] = {}
    try:
        # 'r:' refuses a compressed archive: pictures could not be found by position.
        with tarfile.open(path, 'r:') as archive:
            for member in archive:
                name = pathlib.PurePosixPath(member.name)
                if name.parent.name == _IMAGES:
                    spans[name.name] = (member.offset_data, member.size)
                elif name.name in (_ATTRIBUTES, _PARTITION):
                    content = archive.extractfile(member)
                    if content is not None:
                        texts[name.name] = content.read().decode('utf-8', 'replace')
    except tarfile.TarError as error:
        problem = f'is not an uncompressed .tar, or is damaged ({error})'
        raise UserError(str(path), problem, _REMEDY) from error

    def read_all(wanted: Sequence[str]) -> Iterator[bytes]:
        with open(path, 'rb') as file:
            for name in wanted:
                offset, size = spans[name]
                file.seek(offset)
                yield file.read(size)

    return _Files(path, texts.get, spans, read_all)


def _read_attributes(files: _Files, attribute: str) -> dict[str, Mapping[str, bool]]:
    text = files.text(_ATTRIBUTES)
    if text is None:
        raise UserError(str(files.root), f'has no {_ATTRIBUTES}', _REMEDY)
    lines = text.rstrip().splitlines()
    count, header, *rows = lines if len(lines) > 2 else ('', '')
    titles = header.split()
    columns = attributes.celeba_columns(attribute)
    if count.strip() != str(len(rows)):
        raise _bad_row(files, _ATTRIBUTES, 1, 'does not count the lines below it')
    if missing := set(columns) - set(titles):
        problem = f'has no column {", ".join(sorted(missing))}'
        raise _bad_row(files, _ATTRIBUTES, 2, problem)
    at = [titles.index(column) for column in columns]
    faces: dict[str, Mapping[str, bool]] = {}
    for number, row in enumerate(rows, start=3):
        name, *values = row.split() or ['']
        picked = [values[i] for i in at] if len(values) == len(titles) else ['']
        if name in faces or not set(picked) <= {'1', '-1'}:
            raise _bad_row(files, _ATTRIBUTES, number, 'is malformed or a repetition')
        faces[name] = {c: v == '1' for c, v in zip(columns, picked, strict=True)}
    return faces


def _read_partition(files: _Files) -> dict[str, str] | None:
    text = files.text(_PARTITION)
    if text is None:
        return None
    sides: dict[str, str] = {}
    for number, row in enumerate(text.splitlines(), start=1):
        name, side = (*row.split(), '', '')[:2]
        if side not in ('0', '1', '2') or name in sides:
            raise _bad_row(files, _PARTITION, number, 'is malformed or a repetition')
        sides[name] = side
    return sides


def _bad_row(files: _Files, name: str, number: int, problem: str) -> UserError:
    where = f'{files.root}: {name}, line {number}'
    return UserError(where, problem, 'Use the file as CelebA distributes it')
