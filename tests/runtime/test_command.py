"""What every command does first."""

import os
import subprocess
import sys

import pytest
import tiny_runs

from dpaf_jax.runtime.command import (
    EXIT_BAD_INPUT,
    fail_with_help,
    flush,
    require,
)


@pytest.mark.parametrize('module', ['dpaf_jax.main', 'benchmarks.floor'])
def test_a_mistake_names_the_module_whose_help_to_read(module, capsys):
    path = '/somewhere/' + module.replace('.', '/') + '.py'
    with pytest.raises(SystemExit) as exit_:
        fail_with_help([path], 'is wrong.')
    assert exit_.value.code == EXIT_BAD_INPUT
    expected = f'error: is wrong. See python -m {module} --help\n'
    assert capsys.readouterr().err == expected


def test_an_empty_value_is_none(capsys):
    with pytest.raises(SystemExit) as exit_:
        require(['/x/dpaf_jax/main.py'], {'config': 'a', 'workdir': ''})
    assert exit_.value.code == EXIT_BAD_INPUT
    expected = 'error: --workdir is empty. See python -m dpaf_jax.main --help\n'
    assert capsys.readouterr().err == expected


def test_a_benchmark_without_its_config_says_so_in_one_line():
    done = tiny_runs.run_python('-m', 'benchmarks.step_cost')
    assert (done.returncode, done.stdout) == (EXIT_BAD_INPUT, '')
    expected = '--config is needed. See python -m benchmarks.step_cost --help'
    assert done.stderr == f'error: {expected}\n'


@pytest.mark.parametrize('module', ['dpaf_jax.verify', 'benchmarks.gpu'])
def test_help_is_no_failure(module):
    done = tiny_runs.run_python('-m', module, '--help')
    assert (done.returncode, done.stderr) == (0, '') and 'flags:' in done.stdout


UNCAUGHT = """
from dpaf_jax.runtime.command import prepare_jax

class Ends:
    def __init__(self, message):
        self.message = message

    def __del__(self):  # which nobody can catch, as in a library's own thread
        raise RuntimeError(self.message)

prepare_jax()
Ends('Event loop is closed')
Ends('another')
"""


def test_of_a_damaged_checkpoint_one_error_is_told():
    error = tiny_runs.run_python('-c', UNCAUGHT).stderr
    assert 'RuntimeError: another' in error and 'Event loop' not in error


@pytest.mark.parametrize('line', ['print("a")', 'print("a", flush=True)'])
def test_a_closed_pipe_is_not_told_as_an_error_of_a_place(line):
    program = (
        'import pathlib, sys\n'
        'from dpaf_jax.runtime.command import errors_in_one_line, parse, start\n'
        'def main(argv):\n'
        '    with errors_in_one_line(pathlib.Path("out"), "--out"):\n'
        f'        {line}\n'
        '        sys.stdout.flush()\n'
        'start(main, parse)\n'
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, '-c', program],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tiny_runs.ROOT,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, '')


def test_whoever_reads_no_further_is_no_error(monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, 'w') as closed:
        monkeypatch.setattr(sys, 'stdout', closed)
        print('more than is read')
        flush()
