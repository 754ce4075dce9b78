"""The folder of a run: one user at a time, whole files, room to write."""

import collections
import errno
import json
import pathlib
import subprocess
import sys
import time

import pytest
import tiny_runs

from dpaf_jax.runtime import files
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import read_json, write_json
from dpaf_jax.training import workdir as workdirs
from dpaf_jax.training.workdir import Workdir

HOLD = """
import sys, time
from dpaf_jax.training.workdir import Workdir
with Workdir(sys.argv[1]).locked():
    print('held', flush=True)
    time.sleep(60)
"""


def refused(workdir: Workdir) -> str:
    with pytest.raises(UserError) as error, workdir.locked():
        pass
    return str(error.value)


def test_it_is_made_and_its_private_part_is_the_owners(tmp_path):
    workdir = Workdir(tmp_path / 'a' / 'run')
    with workdir.locked():
        assert tiny_runs.mode(workdir.private) == 0o700


def test_a_private_part_that_others_may_read_is_shut(tmp_path):
    workdir = Workdir(tmp_path)
    workdir.private.mkdir(mode=0o755)
    workdir.private.chmod(0o755)
    with workdir.locked():
        assert tiny_runs.mode(workdir.private) == 0o700
    workdir.private.chmod(0o750)
    workdir.keep_survey('seen')
    assert tiny_runs.mode(workdir.private) == 0o700


def test_a_private_part_of_another_user_is_refused(tmp_path, monkeypatch):
    def cannot(path, mode):
        raise PermissionError(errno.EPERM, 'Operation not permitted')

    workdir = Workdir(tmp_path)
    workdir.private.mkdir()
    workdir.private.chmod(0o755)
    monkeypatch.setattr(pathlib.Path, 'chmod', cannot)
    message = refused(workdir)
    assert message.startswith(f'--workdir: {workdir.private} is open to other users')
    assert not any(workdir.private.iterdir())


def test_a_second_run_is_refused_until_the_first_is_over(tmp_path):
    workdir = Workdir(tmp_path)
    with workdir.locked():
        message = refused(Workdir(tmp_path))
    assert message.startswith(f'--workdir: {tmp_path} is in use by another run. ')
    with Workdir(tmp_path).locked():
        pass


def test_a_bucket_is_not_a_folder():
    with pytest.raises(UserError, match='gs://bucket/run, no folder. Give a mounted'):
        Workdir('gs://bucket/run')


def test_a_file_system_without_locks_is_not_another_run(tmp_path, monkeypatch):
    def cannot(file, operation):
        raise OSError(errno.ENOSYS, 'Function not implemented')

    monkeypatch.setattr(workdirs.fcntl, 'flock', cannot)
    message = refused(Workdir(tmp_path))
    assert 'locks no files (Function not implemented)' in message


def test_a_home_folder_behind_a_flag_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    assert Workdir('~/run').root == tmp_path / 'run'
    assert Workdir('x').decoded('~/cache') == tmp_path / 'cache'


def test_a_run_that_was_killed_holds_nothing(tmp_path):
    environment = {'PYTHONPATH': str(tiny_runs.ROOT)}
    with subprocess.Popen(
        [sys.executable, '-c', HOLD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as other:
        assert other.stdout.readline() == 'held\n'
        assert 'in use' in refused(Workdir(tmp_path))
        other.kill()
        other.wait()
    with Workdir(tmp_path).locked():
        pass


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / 'file').write_text('in the way')
    message = refused(Workdir(tmp_path / 'file' / 'run'))
    assert message.endswith('file/run is a file, or below one. Give a folder.')
    message = refused(Workdir('/proc/run'))
    assert message.startswith('--workdir: /proc/run cannot be written (')
    assert message.endswith('Give another.')
    assert (tmp_path / 'file').read_text() == 'in the way'


def test_a_full_disk_is_noticed_before_work_starts(tmp_path, monkeypatch):
    usage = collections.namedtuple('usage', 'total used free')
    free = workdirs.MIN_FREE_BYTES - 1
    monkeypatch.setattr(files.shutil, 'disk_usage', lambda path: usage(free, 0, free))
    message = refused(Workdir(tmp_path))
    assert message.startswith(f'{tmp_path}: needs 200.0 MiB, and 200.0 MiB are free')
    free += 1
    with Workdir(tmp_path).locked():
        pass


def test_times_of_a_stage_add_up_also_where_it_fails(tmp_path):
    workdir = Workdir(tmp_path)
    for error in (None, RuntimeError):
        try:
            with workdir.timed('train'):
                time.sleep(0.02)
                if error:
                    raise error
        except RuntimeError:
            pass
    with workdir.timed('release'):
        pass
    assert set(workdir.wall_seconds()) == {'train', 'release'}
    assert workdir.wall_seconds()['train'] >= 0.04


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / 'new' / 'plan.json'
    write_json(path, {'epsilon': 1.0})
    with pytest.raises(TypeError):
        write_json(path, {'epsilon': object()})
    assert read_json(path) == {'epsilon': 1.0}
    assert [p.name for p in path.parent.iterdir()] == ['plan.json']


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / 'plan.json'
    write_json(path, {'epsilon': 1.0})

    def full(*args, **options):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(files.os, 'fsync', full)  # as where a file's content goes out
    with pytest.raises(OSError):
        write_json(path, {'epsilon': 2.0})
    assert json.loads(path.read_bytes()) == {'epsilon': 1.0}


def test_absent_json_is_none_and_damaged_json_is_named(tmp_path):
    path = tmp_path / 'plan.json'
    assert read_json(path) is None
    for content in ('{"epsilon": 1', '', '\x00\x01', '[1]', '1'):
        path.write_text(content)
        with pytest.raises(UserError, match=f'^{path}: is damaged'):
            read_json(path)
