"""Small files, whole or not at all."""

import contextlib
import errno
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from dpaf_jax.runtime.errors import UserError

UNFINISHED = '.unfinished'  # ends the temporary name of what is being written


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
    temporary = path.with_name(f'{path.name}{UNFINISHED}')
    _remove(temporary)  # what a killed process has left
    try:
        yield temporary
        if temporary.is_dir():
            os.sync()  # its files may be ten thousands
        else:
            settle(temporary)
        os.replace(temporary, path)
        settle(path.parent)
    finally:
        _remove(temporary)


def settle(path: pathlib.Path) -> None:
    """Has a file's content, or the names in a folder, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: pathlib.Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if path.is_file():
        path.unlink()


def require_space(
    folder: pathlib.Path,
    needed: int,
    remedy: str = 'Free them, or give a folder on another disk',
) -> None:
    """Stops before work starts where a disk has too little room for its outcome.

    Args:
        folder: on that disk; need not exist yet.
        needed: bytes.
        remedy: what to do.

    Raises:
        UserError: it says how many are missing.
    """
    free = shutil.disk_usage(_nearest(folder)).free
    if free < needed:
        raise UserError(
            str(folder),
            f'needs {size_text(needed)}, and {size_text(free)} are free on that disk: '
            f'{size_text(needed - free)} are missing',
            remedy,
        )


def require_place(place: pathlib.Path, flag: str) -> None:
    """Stops before work starts where its outcome could not be written.

    Args:
        place: a folder, or a file that is not there yet; parents are made when it is written.
        flag: that names it.

    Raises:
        UserError: a file is in the way, or the nearest folder cannot be written.
    """
    there, remedy = _nearest(place), f'Give another {flag}'
    if not there.is_dir():
        problem = 'is a file' if there == place else f'is below {there}, a file'
        raise UserError(f'{flag}: {place}', problem, remedy)
    try:
        tempfile.TemporaryFile(dir=there).close()  # permissions alone do not tell
    except OSError as error:
        problem = f'cannot be written ({error.strerror or error})'
        raise UserError(f'{flag}: {place}', problem, remedy) from error


def _nearest(path: pathlib.Path) -> pathlib.Path:
    """The path, or the first above it that is there."""
    above = (*path.parents, *path.absolute().parents)  # as it was given, if it can be
    return next(p for p in (path, *above) if os.path.exists(p))


def refusal(error: OSError, place: pathlib.Path | None, flag: str) -> str:
    """What a command says of an error of the operating system: one line, with a remedy.

    Args:
        error: that has ended it.
        place: where it was to write its outcome; None: nowhere.
        flag: that names the place.
    """
    if is_full_disk(error):
        return full_disk(place or pathlib.Path())
    why, name = error.strerror or str(error), str(error.filename or place or 'a file')
    if place is None or not _is_of(pathlib.Path(name), place):
        return f'{name}: {why}. Check that it is there, whole and open to you.'
    unfinished = any(part.endswith(UNFINISHED) for part in pathlib.Path(name).parts)
    if unfinished and error.errno in (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY):
        return (
            f'{flag}: {place}: another command was writing there, too. Give each its own '
            f'{flag}.'
        )
    if not unfinished and os.path.isfile(name) and place.is_dir():
        return f'{flag}: {name}: {why}. Make it readable and writable, or give another {flag}.'
    where = '' if unfinished or name == str(place) else f': {name}'
    return f'{flag}: {place}: cannot be written ({why}{where}). Give another {flag}.'


def _is_of(path: pathlib.Path, place: pathlib.Path) -> bool:
    """Whether a path is a place, its temporary name, in one of these, or above the place."""
    path, place = path.absolute(), place.absolute()
    own = (place, place.with_name(f'{place.name}{UNFINISHED}'))
    return any(path.is_relative_to(p) for p in own) or path in place.parents


FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG  # the last by `ulimit -f`


def is_full_disk(error: BaseException) -> bool:
    """Whether a full disk, or a quota, is what an error is about, however it was wrapped."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in FULL:
            return True
        if any(os.strerror(number) in str(seen) for number in FULL):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def full_disk(folder: pathlib.Path) -> str:
    """What to say of it."""
    free = shutil.disk_usage(_nearest(folder)).free
    return (
        f'{folder}: the disk is full ({size_text(free)} are free). What was there before is '
        'whole. Free some space, and run the same command to go on.'
    )


def size_text(count: float) -> str:
    """A number of bytes, as people read it."""
    for unit, power in (('GiB', 30), ('MiB', 20)):
        if count >= 2**power:
            return f'{count / 2**power:.1f} {unit}'
    return f'{count / 2**10:.0f} KiB'


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
    """The fields, or None where there is no file; UserError if it is damaged."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        remedy = 'Restore or delete it, then start again'
        raise UserError(str(path), 'is damaged', remedy)
    return content
