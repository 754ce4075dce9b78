"""Picture files in a folder and below, in an order that does not depend on the disk."""

import os
import pathlib
from collections.abc import Iterator, Sequence

SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.pgm', '.png', '.ppm', '.tif', '.tiff', '.webp')


def list_pictures(root: pathlib.Path) -> Iterator[str]:
    """Yields the '/'-separated paths, relative to `root`, of all pictures below it.

    Other files are passed over by their suffix; so are hidden files and folders,
    such as the '._0001.jpg' of macOS archives.

    Raises:
        OSError: for a folder that cannot be read.
    """
    for name, is_folder in _entries(root):
        if is_folder:
            for below in list_pictures(root / name):
                yield f'{name}/{below}'
        elif name.lower().endswith(SUFFIXES):
            yield name


def list_others(root: pathlib.Path) -> Iterator[str]:
    """Yields the paths, as `list_pictures` does, of all files that it passes over.

    Hidden ones are not among them.
    """
    for name, is_folder in _entries(root):
        if is_folder:
            for below in list_others(root / name):
                yield f'{name}/{below}'
        elif not name.lower().endswith(SUFFIXES):
            yield name


def list_folders(root: pathlib.Path) -> list[str]:
    """The sorted names of the folders directly in `root`, hidden ones left out."""
    return [name for name, is_folder in _entries(root) if is_folder]


def read_pictures(root: pathlib.Path, names: Sequence[str]) -> Iterator[bytes]:
    """Yields the content of each file, read when asked for.

    Raises:
        OSError: for a file that cannot be read.
    """
    for name in names:
        yield (root / name).read_bytes()


def _entries(root: pathlib.Path) -> list[tuple[str, bool]]:
    with os.scandir(root) as entries:
        return sorted((e.name, e.is_dir()) for e in entries if e.name[0] != '.')
