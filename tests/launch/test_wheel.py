"""What `pip install dpaf_jax` brings is whole: the command, the configs, the report's page."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv
import zipfile

import numpy as np
import pytest
import tiny_runs
from PIL import Image
from sklearn.datasets import load_digits

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
        if path.is_file() and path.suffix != '.pyc'
    } - {*names}
    assert not missing
    assert {name.partition('/')[0].partition('-')[0] for name in names} == {
        'configs', 'dpaf_jax',
    }  # fmt: skip
    (entry,) = (name for name in names if name.endswith('entry_points.txt'))
    assert b'dpaf-jax = dpaf_jax.cli:main' in zipfile.ZipFile(wheel).read(entry)


# --- as a new user: a new environment, the wheel with what it needs, the command ------

QUICK = (
    '--config.dpaf.generator_steps=10',
    '--config.samples.num=500',
    '--config.evaluation.seeds=1',
    '--config.evaluation.fidelity_images=0',
)


@pytest.fixture(scope='module')
def commands(wheel, tmp_path_factory) -> pathlib.Path:
    """The folder with `python` and `dpaf-jax` of an environment that had nothing."""
    folder = tmp_path_factory.mktemp('empty') / 'environment'
    venv.create(folder, with_pip=True)
    constraints = str(tiny_runs.ROOT / 'constraints.txt')
    wanted = f'{wheel}[parquet]'
    install = ('-m', 'pip', 'install', '-q', '-c', constraints, wanted)
    done = run(folder / 'bin' / 'python', *install, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / 'bin'


def succeeds(*args, cwd) -> str:
    done = run(*args, cwd=cwd)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def synthesizes(commands, source, cwd) -> None:
    """From the data to a release that verifies."""
    command = commands / 'dpaf-jax'
    succeeds(command, 'synthesize', source, '--out=run', *QUICK, cwd=cwd)
    assert 'verdict: consistent' in succeeds(command, 'verify', 'run', cwd=cwd)
    assert (cwd / 'run' / 'report.html').is_file()


def in_folders(images, labels, root):
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = root / ('even', 'odd')[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f'{i:03d}.png')
    return root


def with_labels_csv(images, labels, root):
    root.mkdir()
    rows = ['file,label']
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        Image.fromarray(image).save(root / f'{i:03d}.png')
        rows.append(f'{i:03d}.png,{("even", "odd")[label]}')
    (root / 'labels.csv').write_text('\n'.join(rows))
    return root


def as_arrays(images, labels, root):
    path = root.with_suffix('.npz')
    np.savez(path, images=images, labels=labels)
    return path


@pytest.mark.slow
def test_the_demo_and_its_parquet_file(commands, tmp_path):
    synthesizes(commands, 'digits', tmp_path)
    command = commands / 'dpaf-jax'
    sample = ('sample', 'run', '--num=20', '--out=a.parquet')
    succeeds(command, *sample, cwd=tmp_path)
    code = "import pyarrow.parquet as p; print(p.read_table('a.parquet').num_rows)"
    assert succeeds(commands / 'python', '-c', code, cwd=tmp_path).strip() == '20'


@pytest.mark.slow
@pytest.mark.parametrize('write', [in_folders, with_labels_csv, as_arrays])
def test_pictures_of_ones_own(commands, write, tmp_path):
    digits = load_digits()
    images = np.kron(digits.images[:300], np.ones((2, 2))).astype(np.uint8) * 15
    source = write(images, digits.target[:300] % 2, tmp_path / 'mine')
    synthesizes(commands, source, tmp_path)
    fields = json.loads((tmp_path / 'run' / 'release' / 'config.json').read_text())
    names = '' if write is as_arrays else 'even/odd'
    data = fields['data']
    assert (data['class_names'], data['image_size'], data['num_classes']) == (
        names, 16, 2,
    )  # fmt: skip
