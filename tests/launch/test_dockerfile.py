"""launch/Dockerfile names what is there, and its context lets that through and no run."""

import configparser
import re

import pytest
import tiny_runs

ROOT = tiny_runs.ROOT
TEXT = (ROOT / 'launch' / 'Dockerfile').read_text()
LINES = [
    line
    for line in re.sub(r'\\\n', ' ', TEXT).splitlines()
    if line and not line.startswith('#')
]
ALLOWED = {
    line[1:]
    for line in (ROOT / '.dockerignore').read_text().splitlines()
    if line.startswith('!')
}
SETUP = configparser.ConfigParser(interpolation=None)
SETUP.read(ROOT / 'setup.cfg')


def copied() -> list[str]:
    """What comes from the context."""
    found = [line.split()[1:-1] for line in LINES if line.startswith('COPY')]
    return [name for names in found if not names[0].startswith('--') for name in names]


def test_what_is_copied_is_there_and_in_the_context():
    assert {'configs', 'dpaf_jax', 'setup.cfg', 'constraints.txt'} <= set(copied())
    assert all((ROOT / name).exists() for name in copied())
    assert set(copied()) == ALLOWED


def test_the_context_has_nothing_else():
    ignored = (ROOT / '.dockerignore').read_text().splitlines()
    assert '*' in ignored and not {'runs', 'shared', '.git'} & ALLOWED


@pytest.mark.parametrize('target', ['cpu', 'cuda'])
def test_there_is_a_stage_for_each_kind_of_machine(target):
    assert re.search(rf'^FROM \S+ AS {target}$', TEXT, re.MULTILINE)


def test_extras_and_command_are_those_of_the_package():
    stages = re.findall(r'\.whl\)\[([\w,]+)\]', TEXT)
    assert stages == ['parquet,fidelity', 'cuda']
    extras = ','.join(stages).split(',')
    assert set(extras) <= set(SETUP['options.extras_require'])
    entry = SETUP['options.entry_points']['console_scripts'].split('=')[0].strip()
    assert f'ENTRYPOINT ["{entry}"]' in LINES


def test_no_image_runs_as_root():
    users = [line for line in LINES if line.startswith('USER ')]
    assert users == ['USER 1000:1000', 'USER root', 'USER 1000:1000']


def test_every_instruction_is_one_that_docker_knows():
    known = {'FROM', 'COPY', 'RUN', 'ENV', 'WORKDIR', 'USER', 'ENTRYPOINT'}
    assert {line.split()[0] for line in LINES} <= known
