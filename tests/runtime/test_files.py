"""A full disk is told with what is missing, however it comes to light."""

import collections
import errno
import os
import pathlib

import pytest

from dpaf_jax.runtime import files
from dpaf_jax.runtime.errors import UserError


@pytest.fixture
def free(monkeypatch):
    usage = collections.namedtuple('usage', 'total used free')

    def of(count):
        monkeypatch.setattr(files.shutil, 'disk_usage', lambda path: usage(0, 0, count))

    return of


def test_what_is_missing_is_said_before_work_starts(tmp_path, free):
    free(3 * 2**30)
    files.require_space(tmp_path / 'not' / 'there', 3 * 2**30)
    with pytest.raises(
        UserError, match=r'needs 5\.0 GiB.*3\.0 GiB are.*2\.0 GiB are m'
    ):
        files.require_space(tmp_path / 'not' / 'there', 5 * 2**30)


def wrapped(inner: Exception) -> Exception:
    try:
        try:
            raise inner
        except Exception as error:
            raise RuntimeError('of a library') from error
    except RuntimeError as outer:
        return outer


@pytest.mark.parametrize(
    ('error', 'full'),
    [
        (OSError(errno.ENOSPC, 'full'), True),
        (OSError(errno.EDQUOT, 'quota'), True),
        (OSError(errno.EFBIG, 'ulimit'), True),
        (ValueError(f'in C++: {os.strerror(errno.EFBIG)}'), True),
        (wrapped(OSError(errno.ENOSPC, 'full')), True),
        (ValueError('write 7 bytes: No space left on device [28]'), True),
        (OSError(errno.EACCES, 'denied'), False),
        (wrapped(ValueError('another')), False),
    ],
)
def test_a_full_disk_is_known_through_what_wraps_it(error, full):
    assert files.is_full_disk(error) == full


@pytest.mark.parametrize(
    ('number', 'name', 'message'),
    [
        (errno.EROFS, 'a/x.npz.unfinished', '--out: a/x.npz: cannot be written (Read-'),
        (
            errno.EEXIST,
            'a',
            '--out: a/x.npz: cannot be written (File exists: a). Give ',
        ),
        (errno.ENOENT, 'a/x.npz.unfinished', '--out: a/x.npz: another command was wri'),
        (errno.EEXIST, 'a/x.npz.unfinished', '--out: a/x.npz: another command was wri'),
        (errno.ENOSPC, None, 'a/x.npz: the disk is full ('),
        (errno.EIO, None, '--out: a/x.npz: cannot be written (Input/output error). G'),
        (errno.EACCES, 'b/y', 'b/y: Permission denied. Check that it is there, whole'),
    ],
)
def test_an_error_of_the_system_is_one_line_with_a_remedy(number, name, message):
    error = OSError(number, os.strerror(number), name)
    text = files.refusal(error, pathlib.Path('a/x.npz'), '--out')
    assert text.startswith(message) and text.endswith('.') and 'unfinished' not in text


def test_a_place_is_tried_and_nothing_left_there(tmp_path):
    files.require_place(tmp_path / 'new' / 'x.npz', '--out')
    assert not list(tmp_path.iterdir())
    (tmp_path / 'file').touch()
    with pytest.raises(UserError, match='--out: .*is below .*file, a file. Give anoth'):
        files.require_place(tmp_path / 'file' / 'x.npz', '--out')


def test_a_file_that_may_not_be_read_is_not_said_to_be_unwritable(tmp_path):
    (tmp_path / 'x').touch()
    error = PermissionError(errno.EACCES, 'Permission denied', str(tmp_path / 'x'))
    text = files.refusal(error, tmp_path, '--workdir')
    assert text.startswith(f'--workdir: {tmp_path}/x: Permission denied. Make it read')
    text = files.refusal(error, None, '--out')
    assert text.startswith(f'{tmp_path}/x: Permission denied. Check that it is there')


def test_a_folder_outlives_a_power_failure_before_it_has_its_name(
    tmp_path, monkeypatch
):
    """Its files and both folders' names are on the disk: keys are deleted behind it."""
    settled, replace = [], os.replace

    def note(descriptor):
        settled.append(os.fstat(descriptor).st_ino)

    def rename(*places):
        settled.append('renamed')
        replace(*places)

    monkeypatch.setattr(os, 'fsync', note)
    monkeypatch.setattr(os, 'replace', rename)
    monkeypatch.setattr(os, 'sync', lambda: settled.append('all'))
    with files.written_whole(tmp_path / 'release') as staging:
        staging.mkdir()
        files.write_bytes(staging / 'generator', b'weights')
    made = tmp_path / 'release'
    file, folder, parent = (
        path.stat().st_ino for path in (made / 'generator', made, tmp_path)
    )
    assert settled == [file, 'renamed', folder, 'all', 'renamed', parent]
