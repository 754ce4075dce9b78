"""Compares synthetic images with real ones: python -m dpaf_jax.evaluate --help.

    python -m dpaf_jax.evaluate --real=mnist.npz --synthetic=runs/mnist/release

Any images will do. What it prints and writes is not covered by epsilon.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpaf_jax.runtime.command import (
    errors_in_one_line,
    parse,
    prepare_jax,
    require,
    require_devices,
    start,
)
from dpaf_jax.runtime.files import require_place, write_bytes, write_json
from dpaf_jax.runtime.progress import Teller

SOURCE = (
    'a folder of class folders, an .npz file (images, labels; or train_x, ...), a .parquet '
    'file of dpaf_jax.sample'
)
_REAL = flags.DEFINE_string(
    'real', None, f'{SOURCE}, or a source such as digits or celeba:PATH.'
)
_SYNTHETIC = flags.DEFINE_string(
    'synthetic', None, f'{SOURCE}, or the folder of a release.'
)
_OUT = flags.DEFINE_string(
    'out',
    None,
    'Folder for evaluation.json and real_and_synthetic.png; both show what is private.',
    allow_override=True,
)
_SUITE = flags.DEFINE_enum(
    'suite', 'quick', ['quick', 'full', 'slow', 'dpimagebench'], 'Which classifiers.'
)
_SEEDS = flags.DEFINE_integer(
    'seeds', 1, 'How often each classifier is trained.', lower_bound=1
)
_EPOCHS = flags.DEFINE_integer(
    'epochs',
    0,
    'Of each network; 0: five, or more until it has seen 100 000 images.',
    lower_bound=0,
)
_DATALENS_EPOCHS = flags.DEFINE_integer(
    'datalens_epochs',
    0,
    "Of DataLens' CNN (suite slow); 0: theirs, 600 of grey images, 250 of colour.",
    lower_bound=0,
)
_DATALENS_BATCH_SIZE = flags.DEFINE_integer(
    'datalens_batch_size',
    0,
    "Of DataLens' CNN (suite slow); 0: theirs, 512 of grey images, 256 of colour.",
    lower_bound=0,
)
_CEILING = flags.DEFINE_bool(
    'ceiling', True, 'Also measures the real training images, as a standard.'
)
_FIDELITY = flags.DEFINE_integer(
    'fidelity_images',
    10_000,
    'How many images of each side are compared; 0: no fidelity.',
    lower_bound=0,
)
_NEIGHBOURS = flags.DEFINE_integer(
    'neighbours', 3, 'k of precision and recall.', lower_bound=1
)
_INCEPTION = flags.DEFINE_string(
    'inception_weights',
    '',
    "pytorch-fid's file of weights: also measures FID and Inception score.",
    allow_override=True,
)
_NUM = flags.DEFINE_integer(
    'num',
    60_000,
    'How many images to draw from a release.',
    lower_bound=1,
    allow_override=True,
)
_ATTRIBUTE = flags.DEFINE_string(
    'attribute',
    '',
    'Of celeba and ffhq: what the label says, such as gender, hair or Smiling.',
)
_ANNOTATIONS = flags.DEFINE_string(
    'annotations', '', 'Of ffhq: the path of its features JSON.'
)
_TEST_FRACTION = flags.DEFINE_float(
    'test_fraction',
    None,
    'Of real images without a test split; 0: all are test images, none for a ceiling. By '
    "default a release's images are split as its run split them, and others at 0.2.",
    lower_bound=0.0,
    upper_bound=0.9,
)


def main(argv: Sequence[str]) -> None:
    """The command."""
    given = {'real': _REAL.value, 'synthetic': _SYNTHETIC.value}
    real, synthetic = require(argv, given)
    prepare_jax()
    out = pathlib.Path(_OUT.value) if _OUT.value else None
    with errors_in_one_line(out, '--out'):
        require_devices()
        if out:
            require_place(out, '--out')
        _evaluate(real, synthetic, out)


def _evaluate(real: str, synthetic: str, out: pathlib.Path | None) -> None:
    # Imported late, so that --help and a mistyped flag answer at once.
    from dpaf_jax.evaluation import command, printout

    settings: dict[str, Any] = {
        'suite': _SUITE.value,
        'seeds': _SEEDS.value,
        'epochs': _EPOCHS.value,
        'datalens_epochs': _DATALENS_EPOCHS.value,
        'datalens_batch_size': _DATALENS_BATCH_SIZE.value,
        'fidelity_images': _FIDELITY.value,
        'neighbours': _NEIGHBOURS.value,
        'inception_weights': _INCEPTION.value,
        'train_on_real': _CEILING.value,
    }
    command.check(settings)
    data = {
        'attribute': _ATTRIBUTE.value or None,
        'annotations': _ANNOTATIONS.value,
        'test_fraction': _TEST_FRACTION.value,
    }
    given = {name: value for name, value in data.items() if value is not None}
    sides = command.opened(real, synthetic, _NUM.value, **given)
    report: dict[str, Any] = command.evaluated(sides, settings, Teller(_told))
    try:
        print(printout.table(report), flush=True)  # whatever becomes of the files
    finally:  # also where whoever reads that has seen enough of it
        if out:
            write_json(out / 'evaluation.json', report)
            write_bytes(out / 'real_and_synthetic.png', command.picture(sides))
    if out:
        print(f'\nWritten: {out}/evaluation.json, {out}/real_and_synthetic.png')


def _told(line: str) -> None:
    print(line, flush=True)


def run() -> None:
    """Entry point."""
    start(main, parse)


if __name__ == '__main__':
    run()
