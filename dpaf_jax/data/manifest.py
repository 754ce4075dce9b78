"""What prepared data are: the manifest beside the arrays, and the checks against it.

A manifest describes private data. Its N is public by the privacy contract (the unit
is a record against an empty one); its checksum and the number of records that a filter
has left are not, so it belongs in the private run folder and never in a release.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from dpaf_jax.config import DataConfig
from dpaf_jax.runtime.errors import UserError

FILE_NAME = 'manifest.json'
ARRAYS = (  # by file, in the order in which the checksum takes them
    'train_images.npy',
    'train_labels.npy',
    'test_images.npy',
    'test_labels.npy',
    'train_index.npy',
)
# Raise when the same source and settings would decode to other pixels or splits.
FORMAT = 5


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything of the config that decides the prepared arrays."""

    source: str
    image_size: int
    channels: int
    num_classes: int
    test_fraction: float
    attribute: str
    annotations: str
    columns: str = ''  # defaults: what was prepared before tables has no such fields
    label: str = 'label'
    group: str = ''
    fit: str = 'crop'
    window: str = ''
    subset: int = 0
    format: int = FORMAT

    @classmethod
    def of(cls, config: DataConfig) -> 'Settings':
        """The settings that `config` asks for."""
        names = [f.name for f in dataclasses.fields(cls) if f.name != 'format']
        made = {name: getattr(config, name) for name in names}
        if config.cache:  # others share it, from whatever folder
            made['source'] = _from_anywhere(config.source)
        return cls(**made)


def _from_anywhere(source: str) -> str:
    """The same source, where its path is relative to the current folder by its whole path."""
    kind, colon, path = source.partition(':')
    is_path = colon and kind not in ('tfds', 'private')
    return f'{kind}:{os.path.abspath(os.path.expanduser(path))}' if is_path else source


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A description of prepared data; private, see above.

    Attributes:
        source: the config's source string.
        image_size: height and width of the images.
        channels: 1 (grey) or 3 (RGB).
        num_classes: labels are 0 .. num_classes - 1.
        class_names: by label.
        num_examples: N, records of the training split, empty ones included: as many as
            the source lists, or what the config says.
        num_present: those of them that have an image; private.
        num_test: images of the test split.
        checksum: sha256 over the five prepared arrays; equal for equal arrays.
        settings: what the data were prepared with.
        checksums: of each array by its file; {} in what was prepared before they were
            noted.
    """

    source: str
    image_size: int
    channels: int
    num_classes: int
    class_names: tuple[str, ...]
    num_examples: int
    num_present: int
    num_test: int
    checksum: str
    settings: Settings
    checksums: Mapping[str, str] = dataclasses.field(default_factory=dict)


def array_hash(shape: tuple[int, ...], dtype: str) -> Any:
    """SHA-256 of an array, begun: it takes the array's bytes in C order.

    Args:
        shape: of the array.
        dtype: such as '|u1'.
    """
    header = {'descr': dtype, 'fortran_order': False, 'shape': shape}
    return hashlib.sha256(repr(header).encode())


def combined(checksums: Mapping[str, str]) -> str:
    """The checksum of all arrays from those of each."""
    digests = [bytes.fromhex(checksums[name]) for name in ARRAYS]
    return hashlib.sha256(b''.join(digests)).hexdigest()


def write_manifest(manifest: Manifest, directory: pathlib.Path) -> None:
    """Writes `manifest.json` into the directory and waits until it is on the disk."""
    with open(directory / FILE_NAME, 'w', encoding='utf-8') as file:
        json.dump(dataclasses.asdict(manifest), file, indent=2)
        file.flush()
        os.fsync(file.fileno())


def read_manifest(directory: pathlib.Path) -> Manifest | None:
    """Reads the manifest of prepared data.

    Args:
        directory: as given to `prepare`.

    Returns:
        The manifest, or None where nothing has been prepared.

    Raises:
        UserError: when the manifest is there but damaged or cannot be read.
    """
    path = directory / FILE_NAME
    try:
        return _parse(json.loads(path.read_text(encoding='utf-8')))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problem = f'cannot be read ({error.strerror})'
        raise UserError(str(path), problem, 'Check its permissions') from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(directory, FILE_NAME) from error


def damaged(directory: pathlib.Path, name: str) -> UserError:
    """The error for a prepared file that is not what was once written."""
    remedy = f'Delete the directory {directory} and prepare the data again'
    return UserError(str(directory / name), 'is damaged or incomplete', remedy)


def check_settings(
    manifest: Manifest, config: DataConfig, directory: pathlib.Path
) -> None:
    """Refuses data that were prepared with other settings than the config's.

    They are never prepared anew on the way: they may have taken hours, and another
    run may be reading them.

    Raises:
        UserError: naming each field that differs; for N, `config.data.num_examples`.
    """
    had = dataclasses.asdict(manifest.settings)
    asked = dataclasses.asdict(Settings.of(config))
    other = [
        f'{name} = {had[name]!r} (asked: {asked[name]!r})'
        for name in asked
        if had[name] != asked[name]
    ]
    if other:
        raise UserError(
            str(directory),
            f'was prepared with {", ".join(other)}',
            'Give another directory (config.data.cache), or delete this one',
        )
    check_num_examples(config, manifest.num_examples)


def check_num_examples(
    config: DataConfig, num_listed: int, *, is_told: bool = False
) -> None:
    """Refuses a public N in the config that is too small for the training records.

    Any larger one is sound: records that no image fills are empty. Those that a filter
    dropped are empty, too, and have their places among the N.

    Args:
        config: the data section.
        num_listed: how many records there are to train on.
        is_told: the message says that number, too; for the owner's eyes alone.

    Raises:
        UserError: naming `config.data.num_examples`; unless `is_told` it does not say how
            many images there are, which the owner need not make public.
    """
    if 0 < config.num_examples < num_listed:
        told = f'{num_listed} training images'
        more = told if is_told else 'more training images than that'
        raise UserError(
            'config.data.num_examples',
            f'is {config.num_examples}, but there are {more}',
            'Give the number of all your images or any larger public one, or 0 to take '
            'and publish the number of training images',
        )


def _parse(fields: Any) -> Manifest:
    settings = Settings(**fields.pop('settings'))
    names = tuple(fields.pop('class_names'))
    manifest = Manifest(class_names=names, settings=settings, **fields)
    for part in (manifest, settings):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if isinstance(field.type, type) and type(value) is not field.type:
                raise TypeError(f'{field.name} is {value!r}')
    counts = (manifest.image_size, manifest.num_present)
    if min(counts) < 1 or manifest.num_test < 0 or len(names) != manifest.num_classes:
        raise ValueError('counts do not fit')
    return manifest
