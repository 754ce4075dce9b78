"""Compiled programs stay between runs, where the user wants them, and never stop a run."""

import logging
import os
import stat
import subprocess
import sys

import jax
import pytest

from dpaf_jax.runtime import compilation_cache, machine
from dpaf_jax.runtime.compilation_cache import DIRECTORY, ENABLED, LEAST

CODE = """
import jax
from dpaf_jax.runtime.compilation_cache import LEAST, keep_programs
keep_programs()
jax.config.update(LEAST, 0.0)
jax.jit(lambda x: 2 * x)(1.0)
"""


@pytest.fixture
def kept(tmp_path, monkeypatch, caplog):
    """Calls `keep_programs` in an environment: where programs are kept, what was told."""
    before = {name: getattr(jax.config, name) for name in (DIRECTORY, ENABLED, LEAST)}
    caplog.set_level(logging.INFO)
    monkeypatch.delenv(DIRECTORY.upper(), raising=False)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    jax.config.update(DIRECTORY, None)

    def call(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        compilation_cache.keep_programs()
        told = [compilation_cache.described(), *map(str, caplog.messages)]
        return jax.config.jax_compilation_cache_dir, '\n'.join(told)

    yield call
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_command_writes_its_programs_there(tmp_path):
    environ = {k: v for k, v in os.environ.items() if not k.startswith('JAX_')}
    environ |= {'XDG_CACHE_HOME': str(tmp_path), 'JAX_PLATFORMS': 'cpu'}
    environ.pop('XLA_FLAGS', None)
    subprocess.run([sys.executable, '-c', CODE], env=environ, check=True)
    (folder,) = (tmp_path / 'dpaf_jax' / 'xla').iterdir()
    assert list(folder.iterdir())


def test_programs_are_kept_for_their_owner_and_the_log_says_where(kept, tmp_path):
    directory, told = kept()
    folder = tmp_path / 'dpaf_jax' / 'xla' / machine.kind()
    assert directory == str(folder)
    assert f'are kept in {folder} (JAX_COMPILATION_CACHE_DIR' in told
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_jaxs_own_variable_names_another_folder(kept, tmp_path):
    moved = str(tmp_path / 'elsewhere')
    assert kept(JAX_COMPILATION_CACHE_DIR=moved)[0] == moved
    assert not (tmp_path / 'dpaf_jax').exists()


def test_an_empty_folder_turns_it_off(kept, tmp_path):
    directory, told = kept(JAX_COMPILATION_CACHE_DIR='')
    assert not directory and 'are not kept' in told
    assert not list(tmp_path.iterdir())


def test_jaxs_own_switch_turns_it_off(kept, tmp_path):
    jax.config.update(ENABLED, False)  # as JAX_ENABLE_COMPILATION_CACHE=false does
    directory, told = kept()
    assert not directory and 'are not kept' in told
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_costs_a_warning_alone(kept, tmp_path):
    (tmp_path / 'file').write_text('')
    directory, told = kept(XDG_CACHE_HOME=str(tmp_path / 'file'))
    assert directory is None
    assert 'Not a directory. JAX_COMPILATION_CACHE_DIR names another' in told


def test_programs_of_another_machine_lie_elsewhere(monkeypatch):
    kinds = {machine.kind()}
    with monkeypatch.context() as changed:
        changed.setattr(machine, 'processor', lambda: 'another')
        kinds.add(machine.kind())
    with monkeypatch.context() as changed:
        changed.setattr(machine, 'cores', lambda: 1000)
        kinds.add(machine.kind())
    monkeypatch.setenv('XLA_FLAGS', '--xla_cpu_max_isa=SSE4_2')
    kinds.add(machine.kind())
    assert len(kinds) == 4


def test_a_folder_that_others_may_write_is_not_read(kept, tmp_path):
    folder = compilation_cache.default_directory()
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    directory, told = kept()
    assert not directory and 'others may write there' in told
