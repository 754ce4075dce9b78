"""`dpaf-jax`: one word for each command, thin over the same code."""

import importlib
import pathlib
import re
import subprocess
import sys

import pytest
import tiny_runs

from dpaf_jax import cli

# Flags that are defined inside `tiny_runs.call` are gone behind it.
for command in cli.COMMANDS.values():
    importlib.import_module(command.module)


OWN_FLAG = {
    'synthesize': '  --stage: ',
    'plan': '  --stage: ',
    'sample': '  --seed: ',
    'evaluate': '--suite: ',
    'audit': '  --repetitions: ',
    'attack': '  --attempts: ',
    'tables': '  --part: ',
}


def call(*args: str) -> tiny_runs.Outcome:
    sys.modules.pop('config_config', None)  # what an earlier command has loaded
    return tiny_runs.call(lambda: cli.main(args), 'dpaf-jax')


@pytest.fixture
def translated(monkeypatch):
    """What a command would be called with."""
    called: list[list[str]] = []
    monkeypatch.setattr(sys, 'argv', [])

    class Module:
        @staticmethod
        def run():
            called.append(sys.argv)

    monkeypatch.setattr(cli.importlib, 'import_module', lambda name: Module)

    def of(*args):
        cli.main(args)
        return called.pop()

    return of


@pytest.fixture
def pictures(tmp_path, monkeypatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'my pictures').mkdir()
    return tmp_path / 'my pictures'


def test_a_folder_and_an_epsilon_are_all_that_is_typed(translated, pictures):
    assert translated('synthesize', str(pictures), '--epsilon', '3') == [
        'dpaf-jax synthesize',
        f'--config=configs/recommended.py:folder:{pictures},3',
        '--workdir=runs/my pictures',
    ]


def test_where_and_how_may_be_said_too(translated, pictures):
    given = translated(
        *('synthesize', 'my pictures', '--out', 'runs/mine'),
        *('--config.data.image_size=64', '--stage=plan'),
    )
    assert given[1:] == [
        '--config=configs/recommended.py:folder:my pictures,10',
        '--workdir=runs/mine',
        '--config.data.image_size=64',
        '--stage=plan',
    ]


def test_public_features_are_a_config_of_their_own(translated, pictures):
    given = translated('synthesize', str(pictures), '--public-features')
    assert given[1] == f'--config=configs/public.py:folder:{pictures},10'


def test_sources_are_known_by_what_they_are(translated, pictures):
    (pictures / 'a.npz').touch()
    (pictures.parent / 'digits').mkdir()
    for about, source in {
        'digits/': 'folder:digits/',
        './digits': 'folder:./digits',
        'mnist': 'mnist',
        f'{pictures}/a.npz': f'npz:{pictures}/a.npz',
        'celeba:/x': 'celeba:/x',
    }.items():
        given = translated('synthesize', about, '--epsilon=0.5')
        assert given[1] == f'--config=configs/recommended.py:{source},0.5'
    outcome = tiny_runs.call(lambda: translated('synthesize', 'digits'), 'dpaf-jax')
    assert outcome.code == 2 and 'Write ./digits' in outcome.err


def test_epsilon_is_never_read_from_a_name_nor_rounded(translated, pictures):
    made = pictures.parent / 'faces,2024'
    made.mkdir()
    given = translated('synthesize', 'faces,2024')
    assert given[1:] == [
        '--config=configs/recommended.py:folder:faces,2024,10',
        '--workdir=runs/faces,2024',
    ]
    given = translated('synthesize', 'faces,2024', '--epsilon=0.99999999')
    assert given[1].endswith(',0.99999999')


def test_a_run_is_called_as_its_folder_is(translated, pictures, monkeypatch):
    (pictures / 'a.v2').mkdir()
    monkeypatch.chdir(pictures)
    assert translated('synthesize', '.')[2] == '--workdir=runs/my pictures'
    assert translated('synthesize', 'a.v2')[2] == '--workdir=runs/a.v2'


def test_a_run_stands_for_its_release(translated, pictures):
    (pictures / 'release').mkdir()
    run = str(pictures)
    assert translated('verify', run)[1:] == [f'--release={run}/release']
    assert translated('verify', f'{run}/release')[1:] == [f'--release={run}/release']
    assert translated('sample', run, '--num=3', '--out', 'x.npz')[1:] == [
        f'--release={run}/release', '--num=3', '--out', 'x.npz',
    ]  # fmt: skip
    assert translated('audit', run)[1:] == [
        f'--release={run}/release', f'--out={run}/audit',
    ]  # fmt: skip
    assert translated('evaluate', run, '--real=x.npz')[1:] == [
        f'--synthetic={run}/release', '--real=x.npz',
    ]  # fmt: skip
    assert translated('attack', run, '--attack=membership')[1:] == [
        f'--workdir={run}', '--attack=membership',
    ]  # fmt: skip


@pytest.mark.parametrize('word', cli.COMMANDS)
def test_help_teaches_and_lists_the_flags_of_the_command(word):
    # In a process of its own: flags of one name from other modules would hide these.
    command = [sys.executable, '-m', 'dpaf_jax.cli', word, '--help']
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not ended.stderr
    assert f'  dpaf-jax {word} ' in ended.stdout  # an example
    assert OWN_FLAG.get(word, '') in ended.stdout


@pytest.mark.parametrize(
    ('args', 'message'),
    [
        ((), 'required: COMMAND. See dpaf-jax --help'),
        (('bake',), "invalid choice: 'bake'"),
        (('synthesize',), 'required: SOURCE. See dpaf-jax synthesize --help'),
        (('synthesize', '/no/where'), '/no/where: no such folder or .npz file'),
        (('synthesize', 'digits', '--epsilon=x'), "invalid float value: 'x'"),
        (('synthesize', 'digits', '--epsilon=-1'), 'epsilon: is -1.0. It must be'),
        (('synthesize', 'digits', '--epsilno=1'), "'epsilno'.*See dpaf-jax synth"),
        (('synthesize', 'digits', '--config.daat.a=1'), 'daat.a: no such field'),
        (('sample', '/no/where'), 'error: --out is needed. See dpaf-jax sample --help'),
        (('verify', '/no/where'), '/no/where: no such folder'),
        (('evaluate', '/no/where'), 'error: --real is needed. See dpaf-jax evaluate'),
        (('attack', '/no/where'), 'error: --attack is needed. See dpaf-jax attack'),
        (('tables',), '--table or --list is needed. See dpaf-jax tables --help'),
        (('tables', '--table=dpaf/77'), "--table: is 'dpaf/77'"),
        (
            ('synthesize', 'mnist', '--config=a.py:b'),
            'SOURCE and --config excl.*=a.py:b',
        ),
        (('plan', 'mnist', '--config', 'a.py'), 'exclude each other.*dpaf_jax.main'),
        (
            ('plan', 'digits', '--workdir', 'a'),
            'error: --workdir: is set by dpaf-jax plan',
        ),
        (
            ('plan', 'digits', '--config.privacy.epsilon=3'),
            'epsilon: is set by dpaf-jax plan',
        ),
        (
            ('plan', 'digits', '--config.data.source=a'),
            'source: is set by dpaf-jax plan',
        ),
        (('sample', 'a', '--release=b', '--out=c.npz'), 'is set by dpaf-jax sample'),
        (('verify', 'a', '--release', 'b'), 'is set by dpaf-jax verify'),
        (
            ('evaluate', '--real', 'a.npz', 'b.npz'),
            'SYNTHETIC comes first: dpaf-jax evaluate SYNTHETIC --real a.npz',
        ),
        (('sample', '--num', '5', 'a'), 'RUN comes first: dpaf-jax sample RUN --num 5'),
        (('audit', '/no/where'), '/no/where/generator.safetensors: is missing'),
    ],
)
def test_a_mistake_is_one_line_that_says_where_to_read(
    args, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    outcome = call(*args)
    assert outcome.code == 2 and outcome.out == ''
    (line,) = outcome.err.splitlines()
    assert line.startswith('error: ')
    assert re.search(message, line), line
    assert not list(tmp_path.iterdir())
