"""What every command does first."""

import pytest

from dpaf_jax.runtime.command import EXIT_BAD_INPUT, fail_with_help


@pytest.mark.parametrize('module', ['dpaf_jax.main', 'benchmarks.floor'])
def test_a_mistake_names_the_module_whose_help_to_read(module, capsys):
    path = '/somewhere/' + module.replace('.', '/') + '.py'
    with pytest.raises(SystemExit) as exit_:
        fail_with_help([path], 'is wrong.')
    assert exit_.value.code == EXIT_BAD_INPUT
    expected = f'error: is wrong. See python -m {module} --help\n'
    assert capsys.readouterr().err == expected
