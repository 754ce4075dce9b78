"""What every command does first."""

import os
import subprocess
import sys

import pytest

from dpaf_jax.runtime.command import EXIT_BAD_INPUT, fail_with_help

CODE = """
import jax
from dpaf_jax.runtime.command import prepare_jax
prepare_jax()
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.parametrize('moved', [False, True])
def test_compiled_programs_are_kept_also_where_jax_was_imported_before(moved, tmp_path):
    environ = {k: v for k, v in os.environ.items() if not k.startswith('JAX_')}
    environ |= {'XDG_CACHE_HOME': str(tmp_path), 'JAX_PLATFORMS': 'cpu'}
    expected = tmp_path / 'dpaf_jax' / 'xla'
    if moved:
        expected = tmp_path / 'elsewhere'
        environ['JAX_COMPILATION_CACHE_DIR'] = str(expected)
    ran = subprocess.run(
        [sys.executable, '-c', CODE], env=environ, capture_output=True, text=True
    )
    assert ran.stdout.strip() == str(expected), ran.stderr


@pytest.mark.parametrize('module', ['dpaf_jax.main', 'benchmarks.floor'])
def test_a_mistake_names_the_module_whose_help_to_read(module, capsys):
    path = '/somewhere/' + module.replace('.', '/') + '.py'
    with pytest.raises(SystemExit) as exit_:
        fail_with_help([path], 'is wrong.')
    assert exit_.value.code == EXIT_BAD_INPUT
    expected = f'error: is wrong. See python -m {module} --help\n'
    assert capsys.readouterr().err == expected
