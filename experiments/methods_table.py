"""Every method on two data sets at two epsilons, certified and as published: docs/results.md.

    python -m experiments.methods_table --folder=/path/to/npz --out=runs/table \
        --methods=dp_merf,dp_gan --guarantees=certified

Runs `dpaf_jax.main` once for each cell of the table, with a small budget of computing that is
alike for all (minutes of one core; SMALL says what was cut), then prints a line a cell. A cell
that is already in --out is not run again, one that was stopped goes on.
"""

import itertools
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence

from absl import app, flags

from dpaf_jax.runtime.command import fail, parse
from dpaf_jax.runtime.files import read_json

# By method and guarantee: config (with {} for the data set) and what is cut from it.
SMALL = {
    ('dpaf', 'certified'): ('{}.py', ['dpaf.generator_steps=1500']),
    ('dpaf', 'as_published'): (
        '{}.py:printed',
        ['dpaf.epochs=0.5', 'dpaf.classifier.epochs=0.5'],
    ),
    ('dpgen', 'certified'): ('dpgen.py:{}', ['samples.num=4000']),
    ('dpgen', 'as_published'): ('dpgen.py:{}', ['samples.num=4000']),
    ('g_pate', 'certified'): ('g_pate.py:{}', ['g_pate.steps=250']),
    ('dpba_wgan', 'certified'): (
        'dpba_wgan.py:{}',
        ['dpba_wgan.generator_steps=300'],
    ),
    ('dpba_wgan', 'as_published'): (
        'dpba_wgan.py:{}',
        ['dpba_wgan.generator_steps=300'],
    ),
    ('dp_gan', 'certified'): (
        'dp_gan.py:{}',
        [
            'dp_gan.batch_size=512',
            'dp_gan.discriminator_steps=5',
            'dp_gan.generator_steps=150',
            'dp_gan.width=8',
            'dp_gan.fc_width=32',
        ],
    ),
    ('gs_wgan', 'certified'): ('gs_wgan.py:{}', ['gs_wgan.generator_steps=100']),
    ('gs_wgan', 'as_published'): ('gs_wgan.py:{}', ['gs_wgan.generator_steps=100']),
    ('dp_merf', 'certified'): ('dp_merf.py:{}', ['dp_merf.generator_steps=1000']),
    ('dp_merf', 'as_published'): ('dp_merf.py:{}', ['dp_merf.generator_steps=1000']),
    ('dp_kernel', 'certified'): ('dp_kernel.py:{}', []),
    ('dp_kernel', 'as_published'): ('dp_kernel.py:{}', ['dp_kernel.batch_size=60']),
    ('dp_sinkhorn', 'certified'): ('dp_sinkhorn.py:{}', []),
    ('dp_hp', 'certified'): ('dp_hp.py:{}', []),
    ('pearl', 'certified'): ('pearl.py:{}', []),
}
METHODS = tuple(dict.fromkeys(method for method, _ in SMALL))
GUARANTEES = 'certified', 'as_published'
DATA = 'mnist', 'fashion_mnist'

_FOLDER = flags.DEFINE_string(
    'folder', None, 'Holds mnist.npz and fashion_mnist.npz.', allow_override=True
)
_OUT = flags.DEFINE_string('out', None, 'Workdirs go there.', allow_override=True)
_METHODS = flags.DEFINE_list('methods', list(METHODS), 'Of all.')
_DATA = flags.DEFINE_list('data', list(DATA), 'Sets.', allow_override=True)
_EPSILONS = flags.DEFINE_list('epsilons', ['1', '10'], 'Each.', allow_override=True)
_GUARANTEES = flags.DEFINE_list('guarantees', list(GUARANTEES), 'Of both.')


def command(
    method: str, data: str, epsilon: str, guarantee: str, workdir: pathlib.Path
) -> list[str]:
    """What `main` is called with for a cell.

    Raises:
        KeyError: the method's two guarantees coincide, or it is not known.
    """
    config, cuts = SMALL[method, guarantee]
    settings = [
        f'data.source=npz:{_FOLDER.value}/{data}.npz',
        f'privacy.epsilon={epsilon}',
        f'privacy.guarantee={guarantee}',
        'samples.num=10000',
        'evaluation.seeds=1',
        *cuts,
    ]
    return [
        *(sys.executable, '-m', 'dpaf_jax.main'),
        f'--config=configs/{config.format(data)}',
        f'--workdir={workdir}',
        *(f'--config.{setting}' for setting in settings),
    ]


def run(cell: tuple[str, str, str, str], out: pathlib.Path) -> str:
    """Runs a cell unless it is there, and returns its line."""
    name = '-'.join(cell)
    start = time.monotonic()
    if not (out / name / 'evaluation.json').exists():
        with (out / f'{name}.log').open('a') as log:
            code = subprocess.run(
                command(*cell, out / name), stdout=log, stderr=subprocess.STDOUT
            ).returncode
        if code:
            return f'{name:<44} exit status {code}, see {out / name}.log'
    found = read_json(out / name / 'evaluation.json')['accuracy']['synthetic']
    accuracies = ' '.join(f'{key} {value["mean"]:.3f}' for key, value in found.items())
    return f'{name:<44} {accuracies} {(time.monotonic() - start) / 60:.1f} min'


def main(argv: Sequence[str]) -> None:
    """The command."""
    if len(argv) > 1 or not _FOLDER.value or not _OUT.value:
        fail('give --folder and --out; see --help')
    if unknown := set(_METHODS.value) - set(METHODS):
        fail(f'--methods has {", ".join(unknown)}. Choose from {", ".join(METHODS)}')
    out = pathlib.Path(_OUT.value)
    out.mkdir(parents=True, exist_ok=True)
    cells = itertools.product(
        _METHODS.value, _DATA.value, _EPSILONS.value, _GUARANTEES.value
    )
    for cell in cells:
        if (cell[0], cell[3]) in SMALL:
            print(run(cell, out), flush=True)


if __name__ == '__main__':
    app.run(main, flags_parser=parse)
