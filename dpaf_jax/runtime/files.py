"""Small files, whole or not at all."""

import contextlib
import errno
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


def require_space(folder: pathlib.Path, needed: int) -> None:
    """Stops before work starts where a disk has too little room for its outcome.

    Args:
        folder: on that disk; need not exist yet.
        needed: bytes.

    Raises:
        UserError: it says how many are missing.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise UserError(
            str(folder),
            f'needs {_size(needed)}, and {_size(free)} are free on that disk: '
            f'{_size(needed - free)} are missing',
            'Free them, or give a folder on another disk',
        )


def is_full_disk(error: BaseException) -> bool:
    """Whether a full disk, or a quota, is what an error is about, however it was wrapped."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if os.strerror(errno.ENOSPC) in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def full_disk(folder: pathlib.Path) -> str:
    """What to say of it."""
    free = shutil.disk_usage(folder).free if folder.exists() else 0
    return (
        f'{folder}: the disk is full ({_size(free)} are free). What was there before is '
        'whole. Free some space, and run the same command to go on.'
    )


def _size(count: int) -> str:
    return f'{count / 2**30:.1f} GiB' if count >= 2**30 else f'{count / 2**20:.1f} MiB'


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Writes a file: whole, or not at all."""
    with written_whole(path) as temporary, temporary.open('wb') as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # a power failure must not leave an empty file


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
