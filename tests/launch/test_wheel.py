"""What `pip install dpaf_jax` brings is whole: the command, the configs, the report's page."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
import tiny_runs

SOURCES = ('dpaf_jax', 'configs', 'setup.cfg', 'pyproject.toml', 'README.md', 'LICENSE')
NO_NOISE = '--config.privacy.epsilon=inf'  # quickly planned
WHERE = (
    'import configs.recommended as c, dpaf_jax; print(c.__file__, dpaf_jax.__file__)'
)


@pytest.fixture(scope='module')
def wheel(tmp_path_factory) -> pathlib.Path:
    """Built from what is in the clone, without its leftovers."""
    root = tmp_path_factory.mktemp('wheel')
    for name in SOURCES:
        source = tiny_runs.ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns('__pycache__')
            shutil.copytree(source, root / name, ignore=ignored)
        else:
            shutil.copy(source, root / name)
    command = ('-m', 'build', '--wheel', '--no-isolation', '--outdir', str(root))
    done = tiny_runs.run_python(*command, str(root), cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    (made,) = root.glob('*.whl')
    return made


def run(python, *args, cwd, path='') -> subprocess.CompletedProcess[str]:
    """In another folder, with nothing of the clone to import."""
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    environment |= {'PYTHONPATH': str(path)} if path else {}
    return subprocess.run(
        [str(python), *args],
        capture_output=True, text=True, cwd=cwd, env=environment, check=False,
    )  # fmt: skip


def test_the_installed_package_plans_outside_the_clone(wheel, tmp_path):
    installed, elsewhere = tmp_path / 'installed', tmp_path / 'elsewhere'
    zipfile.ZipFile(wheel).extractall(installed)
    elsewhere.mkdir()
    (elsewhere / 'configs').mkdir()  # of the user's own: hides nothing
    (elsewhere / 'configs' / 'mine.py').touch()
    done = run(sys.executable, '-c', WHERE, cwd=elsewhere, path=installed)
    assert done.stdout.count(str(installed)) == 2, done.stderr
    done = run(
        *(sys.executable, '-m', 'dpaf_jax.main', '--stage=plan'),
        *('--config=configs/recommended.py:digits', '--workdir=run', NO_NOISE),
        cwd=elsewhere, path=installed,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 'guarantee: none' in done.stdout


def test_the_wheel_has_every_file_and_the_command(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    package = [*(tiny_runs.ROOT / 'dpaf_jax').rglob('*')]
    package += (tiny_runs.ROOT / 'configs').glob('*.py')
    missing = {
        path.relative_to(tiny_runs.ROOT).as_posix()
        for path in package
        if path.suffix in ('.py', '.jinja', '.typed')
    } - {*names}
    assert not missing
    assert {name.partition('/')[0].partition('-')[0] for name in names} == {
        'configs', 'dpaf_jax',
    }  # fmt: skip
    (entry,) = (name for name in names if name.endswith('entry_points.txt'))
    assert b'dpaf-jax = dpaf_jax.cli:main' in zipfile.ZipFile(wheel).read(entry)


@pytest.mark.slow
def test_an_empty_environment_runs_the_demo(wheel, tmp_path):
    """As a new user: a new environment, the wheel with its dependencies, the command."""
    import venv

    venv.create(tmp_path / 'empty', with_pip=True)
    python = tmp_path / 'empty' / 'bin' / 'python'
    constraints = tiny_runs.ROOT / 'constraints.txt'
    install = ('-m', 'pip', 'install', '-q', '-c', str(constraints), str(wheel))
    done = run(python, *install, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    quick = ('--config.dpaf.generator_steps=10', '--config.samples.num=500')
    seeds = '--config.evaluation.seeds=1'
    command = tmp_path / 'empty' / 'bin' / 'dpaf-jax'
    done = run(
        *(command, 'synthesize', 'digits', '--out=run', *quick, seeds), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    done = run(command, 'verify', 'run', cwd=tmp_path)
    assert done.returncode == 0 and 'verdict: consistent' in done.stdout
    done = run(command, 'sample', 'run', '--num=20', '--out=a.npz', cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
