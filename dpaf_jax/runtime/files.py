"""Small files, whole or not at all."""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from dpaf_jax.runtime.errors import UserError


@contextlib.contextmanager
def written_whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary name beside `path`, of a file or a folder, that becomes `path` at the end.

    Args:
        path: a file is replaced if it exists; a folder must not be there, or be empty. Its
            parent is made if need be.

    Raises:
        OSError: it cannot be written; what was there before is untouched. After any
            exception nothing is left of the temporary name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f'{path.name}.unfinished')
    _remove(temporary)  # what a killed process has left
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        _remove(temporary)


def _remove(path: pathlib.Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if path.is_file():
        path.unlink()


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Writes a file: whole, or not at all."""
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: pathlib.Path, content: Any) -> None:
    """Writes JSON: whole, or not at all."""
    write_text(path, json_text(content))


def json_text(content: Any) -> str:
    """What `write_json` writes."""
    return json.dumps(content, indent=2) + '\n'


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a text in UTF-8: whole, or not at all."""
    write_bytes(path, text.encode())


def read_json(path: pathlib.Path) -> Any:
    """The content, or None where there is no file; UserError if it is damaged."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding='utf-8'))
    except ValueError:
        raise UserError(
            str(path), 'is damaged', 'Restore or delete it, then start again'
        ) from None
