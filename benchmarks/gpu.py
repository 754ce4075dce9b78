"""Everything that a card is asked, in ten minutes and without a network; one JSON file.

    python -m benchmarks.gpu --out=docs/gpu.json      # then: python docs/tables.py
    python -m benchmarks.gpu --out=smoke.json --smoke # tiny, on any machine

Runs other benchmarks, each in a process of its own, while nvidia-smi is asked every second
what the card does: clipping against naive vmap, and JAX-Privacy and Opacus where they are
installed, with and without TF32; what a step costs over the same without protection, for
DPAF's forms and six methods; MNIST and faces of 64 x 64 from images to report. Images are
those of $DPAF_DATA where it has them (mnist.npz, celeba10k.tar), else random: times are the
same. What fails or finds no time left is noted as such, and the file is written anew after
each part. The same command again measures what has no result yet on this card; for all anew,
delete the file. Exit status: 0 if all have one.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from dpaf_jax.runtime.command import fail, parse, require, start
from dpaf_jax.runtime.files import write_json
from dpaf_jax.runtime.text import now

_OUT = flags.DEFINE_string('out', None, 'The JSON file.')
_SMOKE = flags.DEFINE_bool(
    'smoke', False, 'Tiny sizes: says that it runs, not how fast.'
)
_MINUTES = flags.DEFINE_float('minutes', 10.0, 'For everything.', lower_bound=0.1)

EXIT_INCOMPLETE = 1
METHODS = ('dp_merf', 'dp_gan', 'dpba_wgan', 'gs_wgan', 'g_pate', 'dpgen')
DPAF = ('mnist.py:one_shot', 'mnist.py:canonical', 'mnist.py:printed')
FACES = 'faces 64 x 64'
MOST_OF_THE_REST = 0.5  # that one part may take, so that others are measured, too
LEAST = 30.0  # seconds; with less no part is begun
ASKED = 'utilization.gpu', 'memory.used', 'power.draw'  # percent, MiB, W
SMOKE_JOB = {
    'dpaf.generator_steps': 2,
    'dpaf.generator.batch_size': 20,
    'dpaf.classifier.epochs': 0.1,
    'samples.num': 200,
    'evaluation.seeds': 1,
    'evaluation.epochs': 1,
    'evaluation.fidelity_images': 0,
}


@dataclasses.dataclass(frozen=True)
class Part:
    """One benchmark: `python -m benchmarks.MODULE FLAGS`, with more variables."""

    name: str
    module: str
    flags: tuple[str, ...]
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


def parts(jobs: Mapping[str, Sequence[str]], smoke: bool) -> list[Part]:
    """What is measured, in the order of how much it is missed; what takes longest is last.

    Args:
        jobs: argument of `configs/recommended.py` and further flags of each whole job, by
            its name.
        smoke: whether in sizes of the embedded digits.
    """
    few = ('--rounds=1',) if smoke else ()
    images = ('--images=1437',) if smoke else ('--images=60000', '--rounds=3')
    clipping = ('--config=configs/mnist.py:printed', *few)
    clipping += ('--batch=4',) if smoke else ()
    configs = ['digits.py:one_shot'] if smoke else list(DPAF)
    configs += [f'{name}.py:{"digits" if smoke else "mnist"}' for name in METHODS]
    tiny = [f'--config.{name}={value}' for name, value in SMOKE_JOB.items()] * smoke
    mnist, faces = (
        Part(
            f'{name}, whole',
            'wall_clock',
            (f'--config=configs/recommended.py:{argument}', *more, *tiny),
        )
        for name, (argument, *more) in jobs.items()
    )
    steps = [
        Part(f'step: {name}', 'step_cost', (f'--config=configs/{name}', *images, *few))
        for name in configs
    ]
    exact = {'NVIDIA_TF32_OVERRIDE': '0'}
    without = Part('clipping without TF32', 'clipping', clipping, exact)
    return [Part('clipping', 'clipping', clipping), mnist, *steps, without, faces]


def card() -> dict[str, str]:
    """Name, driver and memory, as nvidia-smi says them; nothing where there is none."""
    fields = ('name', 'driver_version', 'memory.total')
    told = _asked(fields)
    return dict(zip(fields, told, strict=True)) if told else {}


def _asked(fields: Sequence[str]) -> list[str]:
    command = ['nvidia-smi', f'--query-gpu={",".join(fields)}', '--format=csv,noheader']
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [field.strip() for field in told.stdout.splitlines()[0].split(',')]


class Watch:
    """What the card does while something runs, once a second."""

    def __init__(self) -> None:
        self._rows: list[list[float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> 'Watch':
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while told := _asked(ASKED):
            self._rows.append(numbers(told))
            if self._done.wait(1.0):
                return

    def seen(self) -> dict[str, float]:
        """The mean of the utilisation and power, the most memory; nothing without a card."""
        rows = np.array(self._rows).reshape(-1, len(ASKED))
        means = {'utilisation_percent': rows[:, 0], 'power_watt': rows[:, 2]}
        seen = {name: np.mean(column) for name, column in means.items() if len(rows)}
        seen |= {'memory_mib': np.max(rows[:, 1])} if len(rows) else {}
        return {n: round(float(x), 1) for n, x in seen.items() if np.isfinite(x)}


def numbers(told: Sequence[str]) -> list[float]:
    """'97 %', '1024 MiB', '[N/A]' as numbers; NaN for the last."""
    found = []
    for field in told:
        try:
            found.append(float(field.split()[0]))
        except ValueError:
            found.append(float('nan'))
    return found


def measured(part: Part, seconds: float) -> dict[str, Any]:
    """The part's own JSON object, how long it took, what the card did; or 'error'."""
    if seconds <= 0:
        return {'error': 'no time left'}
    command = [sys.executable, '-m', f'benchmarks.{part.module}', *part.flags]
    environ, start = os.environ | dict(part.variables), time.monotonic()
    with Watch() as watch:
        try:
            ran = subprocess.run(
                command, env=environ, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return {'error': f'not done after {seconds:.0f} s'}
    lines = (ran.stdout if ran.returncode == 0 else ran.stderr).strip().splitlines()
    if ran.returncode:
        return {'error': lines[-1] if lines else f'exit status {ran.returncode}'}
    return {
        'date': now(),
        'wall_seconds': round(time.monotonic() - start, 1),
        **watch.seen(),
        **json.loads(lines[-1]),
    }


def whole_jobs(folder: pathlib.Path, smoke: bool) -> dict[str, list[str]]:
    """The jobs that `parts` takes; images that $DPAF_DATA lacks are written to `folder`."""
    if smoke:
        faces = arrays(folder / 'faces.npz', 60, 8, 3, 2)
        return {'MNIST': ['digits'], FACES: [f'npz:{faces}']}
    known = pathlib.Path(os.environ.get('DPAF_DATA', folder))
    mnist, celeba = known / 'mnist.npz', known / 'celeba10k.tar'
    if not mnist.exists():
        mnist = arrays(folder / 'mnist.npz', 60000, 28, 1, 10)
    jobs = {'MNIST': ['mnist', f'--config.data.source=npz:{mnist}']}
    if celeba.exists():
        with tarfile.open(celeba) as tar:
            tar.extractall(folder, filter='data')
        source = f'--config.data.source=celeba:{folder}'
        return jobs | {FACES: ['celeba64:gender', source]}
    faces = arrays(folder / 'faces.npz', 8000, 64, 3, 2)
    return jobs | {FACES: [f'npz:{faces}']}


def arrays(
    path: pathlib.Path, number: int, side: int, channels: int, num_classes: int
) -> pathlib.Path:
    """Writes random pixels, labels in turn, with a sixth as many to test; returns `path`."""
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for name, count in (('train', number), ('test', number // 6)):
        size = (count, side, side, channels)
        made[f'{name}_x'] = rng.integers(256, size=size, dtype=np.uint8)
        made[f'{name}_y'] = np.arange(count) % num_classes
    np.savez(path, **made)
    return path


def before(out: pathlib.Path, this_card: Mapping[str, str]) -> dict[str, Any]:
    """Results of an earlier call on the same card, by part."""
    if not out.exists():
        return {}
    found = json.loads(out.read_text(encoding='utf-8'))
    if found['card'] != this_card:
        return {}
    return {name: part for name, part in found['parts'].items() if 'error' not in part}


def measure_all(asked: Sequence[Part], out: pathlib.Path, seconds: float) -> bool:
    """Runs the parts within a time and keeps `out` up to date; whether all have a result.

    What `out` has of this very card already stays, with its own date.
    """
    end = time.monotonic() + seconds
    result: dict[str, Any] = {'date': now(), 'card': card(), 'parts': {}}
    there = before(out, result['card'])
    for part in asked:
        found = there.get(part.name)
        if found is None:
            most = MOST_OF_THE_REST * (end - time.monotonic())
            found = measured(part, most if most > LEAST else 0.0)
            told = found.get('error') or f'{found["wall_seconds"]} s'
        else:
            told = f'kept, of {found["date"]}'
        result['parts'][part.name] = found
        print(f'{part.name}: {told}', flush=True)
        write_json(out, result)
    return not any('error' in found for found in result['parts'].values())


def main(argv: Sequence[str]) -> None:
    """Measures and writes."""
    (place,) = require(argv, {'out': _OUT.value})
    out = pathlib.Path(place)
    if not os.access(out.parent, os.W_OK):
        fail(f'--out: {out.parent} is no folder that can be written. Give another')
    with tempfile.TemporaryDirectory() as folder:
        jobs = whole_jobs(pathlib.Path(folder), _SMOKE.value)
        asked = parts(jobs, _SMOKE.value)
        if not measure_all(asked, out, 60 * _MINUTES.value):
            sys.exit(EXIT_INCOMPLETE)


if __name__ == '__main__':
    start(main, parse)
