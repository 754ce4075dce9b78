"""Runs small enough for a test: fake data in each layout, configs shrunk to fit it."""

import atexit
import contextlib
import dataclasses
import fcntl
import functools
import importlib
import io
import json
import os
import pathlib
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from absl import flags
from absl.testing import flagsaver
from ml_collections import ConfigDict
from PIL import Image

from dpaf_jax.config import METHOD_SECTIONS, sections_of
from dpaf_jax.privacy import accounting, published
from dpaf_jax.privacy.accounting import calibration, epsilon

ROOT = pathlib.Path(__file__).parent.parent
ENTROPY = bytes(range(200, 232))
PER_CLASS = 12
shared = pathlib.Path()  # a folder of all processes of the test session; conftest.py


def fake_images(
    number: int, side: int, channels: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Images whose upper half is as bright as the parity of their index says."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 120, (number, side, side, channels), np.uint8)
    images[1::2, : side // 2] += 120
    return images, np.arange(number)


def write_npz(
    path: pathlib.Path, *, side: int = 8, num_classes: int = 2, seed: int = 0
) -> str:
    """A training and a test split; returns the config's source."""
    arrays = {}
    for i, split in enumerate(('train', 'test')):
        number = num_classes * (PER_CLASS if split == 'train' else 4)
        images, index = fake_images(number, side, 1, seed + i)
        arrays |= {f'{split}_x': images[..., 0], f'{split}_y': index % num_classes}
    np.savez(path, **arrays)
    return f'npz:{path}'


def write_folder(path: pathlib.Path, *, side: int = 8, num_classes: int = 2) -> str:
    """Class sub-folders of PNG files."""
    images, index = fake_images(PER_CLASS * num_classes, side, 1)
    for image, i in zip(images, index, strict=True):
        _save(path / f'class{i % num_classes}' / f'{i:03d}.png', image)
    return f'folder:{path}'


def write_celeba(path: pathlib.Path, *, side: int = 64) -> str:
    """img_align_celeba/ and its attributes: Male, and exactly one hair colour."""
    images, index = fake_images(3 * PER_CLASS, side, 3)
    columns = ('Black_Hair', 'Blond_Hair', 'Brown_Hair', 'Male')
    lines = [str(len(images)), ' '.join(columns)]
    for image, i in zip(images, index, strict=True):
        name = f'{i + 1:06d}.jpg'
        _save(path / 'img_align_celeba' / name, image)
        flags = (i % 3 == 0, i % 3 == 1, i % 3 == 2, i % 2 == 1)
        lines.append(' '.join([name, *('1' if flag else '-1' for flag in flags)]))
    (path / 'list_attr_celeba.txt').write_text('\n'.join(lines) + '\n')
    return f'celeba:{path}'


def write_ffhq(path: pathlib.Path, *, side: int = 128) -> tuple[str, str]:
    """Numbered pictures and one JSON of features; returns source and annotations."""
    images, index = fake_images(2 * PER_CLASS, side, 3)
    records = {}
    for image, i in zip(images, index, strict=True):
        _save(path / 'images' / f'{i:05d}.png', image)
        gender = ('female', 'male')[i % 2]
        records[f'{i:05d}'] = [{'faceAttributes': {'gender': gender}}]
    annotations = path / 'features.json'
    annotations.write_text(json.dumps(records))
    return f'ffhq:{path / "images"}', str(annotations)


def _save(path: pathlib.Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(path)


def load_config(name: str, argument: str = '') -> ConfigDict:
    """A config of the repository, as `--config=configs/<name>.py:<argument>` gives it."""
    module = importlib.import_module(f'configs.{name}')
    return module.get_config(argument) if argument else module.get_config()


@contextlib.contextmanager
def without_accountant() -> Iterator[None]:
    """Noise multiplier 1 for everything: a plan's other numbers need no accountant."""

    def settle(mechanism: Any, *_: Any) -> Any:
        return dataclasses.replace(mechanism, noise_multiplier=1.0)

    def settle_all(mechanisms: Any, *_: Any) -> Any:
        return [settle(m) for m in mechanisms]

    # Below any share of any epsilon, so that all of them are met.
    fast = {
        'calibrate': settle,
        'calibrate_together': settle_all,
        'epsilon_pld': lambda *_: 0.01,
        'epsilon_rdp': lambda *_: 0.02,
    }
    claimed = {'calibrate': settle_all, 'epsilon': lambda *_: 0.01}
    with (
        mock.patch.multiple(accounting, **fast),
        mock.patch.multiple(published, **claimed),
    ):
        yield


EMBEDDINGS = 'dp_merf', 'dp_kernel', 'dp_hp', 'pearl'


def shrink(config: ConfigDict, source: str, **changes: Any) -> ConfigDict:
    """The same kind of run with thin networks, two steps and forty samples.

    Args:
        config: changed in place.
        source: of a few images.
        **changes: further fields, with '__' for the dot: privacy__epsilon=1.0.
    """
    small = {
        'data.source': source,
        'data.num_examples': 0,
        'data.test_fraction': 0.3,
        'networks.width': 2,
        'networks.generator_width': 2,
        'networks.fc_width': 4,
        'networks.z_dim': 4,
        'dpaf.asymmetry': 2,
        'dpaf.n_critic': 1,
        'dpaf.generator_steps': 1,
        'dpaf.generator.batch_size': 4,
        'dpaf.classifier.batch_size': 4,
        'dpaf.classifier.epochs': 0.01,
        'dpaf.conv2.batch_size': 4,
        'dpgen.width': 2,
        'dpgen.num_levels': 3,
        'dpgen.batch_size': 4,
        'dpgen.microbatch': 4,
        'dpgen.multiplicity': 2,
        'dpgen.steps': 2,
        'dpgen.candidates': 2,
        'dpgen.labeller_steps': 2,
        **{f'{name}.generator_steps': 2 for name in EMBEDDINGS},
        'samples.num': 40,
        'evaluation.seeds': 1,
        'evaluation.fidelity_images': 0,
        'evaluation.epochs': 1,
        'evaluation.batch_size': 20,
        'run.devices': 1,
    }
    if config.dpaf.batch_size:
        small |= {'dpaf.batch_size': 2, 'dpaf.epochs': 0.05}
    else:
        small |= {'dpaf.generator_steps': 2}
    changes = {name.replace('__', '.'): value for name, value in changes.items()}
    config.update_from_flattened_dict(small | changes)
    return config


def one_shot(source: str, **changes: Any) -> ConfigDict:
    """8 x 8 images in two classes; DPAGG once per class over all of them."""
    return shrink(load_config('digits', 'one_shot'), source, **_eight(changes))


def canonical(source: str, **changes: Any) -> ConfigDict:
    """8 x 8 images in two classes; both phases on small mixed batches."""
    layers = {'networks__layers': 'C1-C1-x'}
    return shrink(load_config('digits', 'printed'), source, **_eight(layers | changes))


def resumable(kind: str, source: str) -> ConfigDict:
    """As `one_shot` or `canonical`, with several windows in every phase."""
    if kind == 'one_shot':
        return one_shot(source, dpaf__generator_steps=60)
    return canonical(source, dpaf__epochs=0.6, dpaf__classifier__epochs=1.3)


def _eight(changes: dict[str, Any]) -> dict[str, Any]:
    return {'data__image_size': 8, 'data__num_classes': 2} | changes


def flags_of(config: ConfigDict, base: ConfigDict) -> list[str]:
    """The command line that turns `base` into `config`, as far as its method reads."""

    def flat(fields: dict[str, Any], path: str = '--config') -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in fields.items():
            where = f'{path}.{name}'
            found |= flat(value, where) if isinstance(value, dict) else {where: value}
        return found

    now, before = flat(config.to_dict()), flat(base.to_dict())
    changed = {name: value for name, value in now.items() if value != before[name]}
    others = set(METHOD_SECTIONS) - set(sections_of(config.method))
    return [
        f'{name}={value}'
        for name, value in changed.items()
        if name.split('.')[1] not in others
    ]


class Outcome(NamedTuple):
    """What a command left: its exit status and what it wrote."""

    code: int
    out: str
    err: str


def call_main(*args: str) -> Outcome:
    """`python -m dpaf_jax.main <args>` inside this process: as a user sees it, quickly."""
    from dpaf_jax import main

    sys.modules.pop('config_config', None)  # what an earlier command has loaded
    return call(main.run, 'dpaf_jax.main', *args)


def call(run: Callable[[], Any], name: str, *args: str) -> Outcome:
    """Runs a command; flags, signals, environment and import path stay as they were."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    saved = flagsaver.save_flag_values(flags.FLAGS)
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        with (
            mock.patch.object(sys, 'argv', [name, *args]),
            mock.patch.object(sys, 'path', [*sys.path]),
            mock.patch.dict(os.environ),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                run()
            except SystemExit as exit_:
                code = exit_.code or 0
    finally:
        flagsaver.restore_flag_values(saved, flags.FLAGS)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Outcome(code, out.getvalue(), err.getvalue())


def run_python(
    *args: str,
    cwd: pathlib.Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`python <args>` in a process of its own, waited for.

    Its devices are this process's, so that what is compiled here is read there.
    """
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {'PYTHONPATH': str(ROOT)} | (environment or {}),
        timeout=300,
        check=False,
    )


_FINE = {name: getattr(epsilon, name) for name in ('PLD_GRID', 'ORDERS')}


def fine_accounting() -> Any:
    """A context in which epsilon is found as users find it."""
    return mock.patch.multiple(epsilon, **_FINE)


@contextlib.contextmanager
def accounting_grid(grid: float = 1e-2) -> Iterator[None]:
    """A context in which epsilon is found quickly, a little too high, and without a word.

    On a busy machine a search may be long enough to tell how far it is.
    """
    quick = {'PLD_GRID': grid, 'ORDERS': calibration.FEW_ORDERS}
    silent = mock.patch.object(calibration, 'PATIENCE', float('inf'))
    with mock.patch.multiple(epsilon, **quick), silent:
        yield


class Finished(NamedTuple):
    """A run that is done.

    Attributes:
        workdir: of the run.
        config: of the run.
        entropy: that it drew from the operating system, as long as it was there.
        private_modes: of private/ and private/entropy while training.
    """

    workdir: pathlib.Path
    config: ConfigDict
    entropy: bytes
    private_modes: tuple[int, int]


def _folder() -> pathlib.Path:
    """A folder that goes when this process does."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix='dpaf_jax-tests-'))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def finished(kind: str) -> Finished:
    """A whole run of `one_shot` or `canonical`: change nothing.

    Each process has a copy of its own, since a stage holds the folder that it looks at.
    """
    folder, made = once(kind, functools.partial(_finish, kind))
    own = folder / f'run-{os.getpid()}'
    shutil.copytree(made.workdir, own)
    return made._replace(workdir=own)


def once(name: str, make: Callable[[pathlib.Path], Any]) -> tuple[pathlib.Path, Any]:
    """A folder of the whole test session, and what making it has returned: change nothing.

    Args:
        name: of the folder.
        make: fills it; called by whichever process asks first.
    """
    folder = shared / name
    folder.mkdir(parents=True, exist_ok=True)
    returned = folder / 'returned'
    with (folder / 'lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not returned.exists():
            returned.write_bytes(pickle.dumps(make(folder)))
    return folder, pickle.loads(returned.read_bytes())


def _finish(kind: str, folder: pathlib.Path) -> Finished:
    import tiny

    from dpaf_jax.pipeline.synthesize import Pipeline

    config = {'one_shot': one_shot, 'canonical': canonical}[kind](
        write_npz(folder / 'images.npz'), evaluation__train_on_real=kind == 'one_shot'
    )
    pipeline = Pipeline(config, folder / 'run')
    private = folder / 'run' / 'private'
    with accounting_grid(), tiny.quick_compilation():  # whoever asks
        for stage in ('prepare', 'plan', 'train'):
            pipeline.run(stage)
        entropy = (private / 'entropy').read_bytes()
        modes = (mode(private), mode(private / 'entropy'))
        for stage in ('release', 'samples', 'evaluate', 'report'):
            pipeline.run(stage)
    return Finished(folder / 'run', config, entropy, modes)


def mode(path: pathlib.Path) -> int:
    """Who may do what with a file, such as 0o600."""
    return stat.S_IMODE(path.stat().st_mode)


@functools.cache
def _begun() -> tuple[pathlib.Path, ConfigDict]:
    from dpaf_jax.pipeline.synthesize import Pipeline
    from dpaf_jax.training.signals import Interrupted, StopRequest

    folder = _folder()
    config = one_shot(write_npz(folder / 'images.npz'), dpaf__generator_steps=4)
    stop = StopRequest()
    pipeline = Pipeline(config, folder / 'run', stop=stop)
    with accounting_grid(), stop_at(stop, 'gan', 1), contextlib.suppress(Interrupted):
        for stage in ('prepare', 'plan', 'train'):
            pipeline.run(stage)
    assert not pipeline.workdir.release.exists() and pipeline.workdir.entropy.exists()
    return folder / 'run', config


def begun(target: pathlib.Path) -> ConfigDict:
    """Copies a run that was stopped in training; returns its config."""
    source, config = _begun()
    shutil.copytree(source, target)
    return config.copy_and_resolve_references()


def contents(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
    """Every file of a run and what is in it, but for the lock and the stages' times."""
    return {
        path: path.read_bytes()
        for path in folder.rglob('*')
        if path.is_file() and path.name not in ('lock', 'stages.json')
    }


@contextlib.contextmanager
def stop_at(stop: Any, phase: str, step: int) -> Iterator[None]:
    """A SIGTERM when `phase` has done `step` steps, as far as the loop can tell."""
    from dpaf_jax.training.progress import Progress

    update = Progress.update

    def note(self: Progress, at: int, metrics: Any) -> None:
        update(self, at, metrics)
        if self.phase == phase and at >= step:
            stop.signal_number = signal.SIGTERM

    with mock.patch.object(Progress, 'update', note):
        yield
