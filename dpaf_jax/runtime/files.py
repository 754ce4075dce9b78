"""Small files, whole or not at all."""

import json
import os
import pathlib
from typing import Any

from dpaf_jax.runtime.errors import UserError


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Writes a file that is never seen half done; makes its folder if need be.

    Args:
        path: replaced if it exists.
        content: the whole file.

    Raises:
        OSError: it cannot be written; what was there before is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: pathlib.Path, content: Any) -> None:
    """Writes JSON: whole, or not at all."""
    write_text(path, json_text(content))


def json_text(content: Any) -> str:
    """What `write_json` writes."""
    return json.dumps(content, indent=2) + '\n'


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a text under a temporary name, then renames it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + '.unfinished')
    temporary.write_text(text, encoding='utf-8')
    temporary.rename(path)


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
