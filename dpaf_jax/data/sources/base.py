"""What a source of labelled images offers to the preparation."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from dpaf_jax.runtime.errors import UserError

# An encoded picture (the bytes of a PNG or JPEG file), or [H, W] or [H, W, C] uint8.
Content = bytes | np.ndarray


@dataclasses.dataclass(frozen=True)
class Source:
    """A labelled data set: listed and counted, its images not yet decoded.

    Attributes:
        where: what messages call it: a path, or a name.
        class_names: by label.
        labels: [n] integers, in the order of the records.
        record_id: index to a name that stays the same whichever other records there
            are (a file name, a position): it decides the hash split.
        is_test: [n] bool, or None for a source that has no test split of its own.
        contents: opens the images of the records that are not empty, in their order;
            reads them lazily.
        is_empty: [n] bool, or None for nowhere: records that a filter of the source
            empties. They count in N and split like others, but have no image and no
            label: how many they are is private, and N stays public.
        groups: [n] names by the column `config.group`, where the source has columns.
        notes: what is worth a look, such as files that were passed over; private.
    """

    where: str
    class_names: tuple[str, ...]
    labels: np.ndarray
    record_id: Callable[[int], str]
    is_test: np.ndarray | None
    contents: Callable[[], Iterator[Content]]
    is_empty: np.ndarray | None = None
    groups: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_present(self) -> np.ndarray:
        """[n] bool: the records that have an image and a label."""
        if self.is_empty is None:
            return np.ones(len(self.labels), bool)
        return ~self.is_empty


def only(source: Source, kept: np.ndarray) -> Source:
    """Some of the records, under their ids; its `is_test` is still that of all.

    Args:
        source: listed.
        kept: [n] bool.
    """
    places = np.flatnonzero(kept).tolist()

    def contents() -> Iterator[Content]:
        present = np.flatnonzero(source.is_present).tolist()
        for i, content in zip(present, source.contents(), strict=True):
            if kept[i]:
                yield content

    return dataclasses.replace(
        source,
        labels=source.labels[kept],
        record_id=lambda i: source.record_id(places[i]),
        contents=contents,
        is_empty=None if source.is_empty is None else source.is_empty[kept],
        groups=None,
    )


def without_labels(source: Source) -> Source:
    """The same records, all of one class."""
    labels = np.zeros_like(source.labels)
    return dataclasses.replace(source, labels=labels, class_names=counting_names(1))


def existing(path: str, where: str) -> pathlib.Path:
    """The path, '~' expanded, after a check that something is there.

    Args:
        path: as written in the config.
        where: the config field it stands in.

    Raises:
        UserError: naming the field.
    """
    if not path:  # Path('') is the current folder
        raise UserError(where, 'names no path', 'Write one behind the colon')
    found = pathlib.Path(path).expanduser()
    if not found.exists():
        remedy = 'Give the path of an existing file or folder'
        raise UserError(where, f'names {found}, which does not exist', remedy)
    return found


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Turns a failure to read inside the block into a UserError naming the file."""
    try:
        yield
    except OSError as error:
        raise UserError(
            str(error.filename or where),
            f'cannot be read ({error.strerror or error})',
            'Check that it is there, whole and readable',
        ) from error


def counting_names(num_classes: int) -> tuple[str, ...]:
    """The class names of a source that has only numbers for them."""
    return tuple(str(label) for label in range(num_classes))
