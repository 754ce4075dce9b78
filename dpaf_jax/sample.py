"""Draws a synthetic data set from a release: python -m dpaf_jax.sample --help."""

import math
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags

from dpaf_jax.release.bundle import load_release
from dpaf_jax.release.drawing import MOST_SEED, Release, balanced_labels
from dpaf_jax.release.export import write_csv, write_folder, write_npz
from dpaf_jax.release.parquet import write_parquet
from dpaf_jax.runtime.command import (
    errors_in_one_line,
    parse,
    prepare_jax,
    require,
    require_devices,
    start,
)
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import require_place, require_space, size_text
from dpaf_jax.runtime.memory import machine_memory
from dpaf_jax.runtime.progress import Teller

_RELEASE = flags.DEFINE_string(
    'release', None, 'Folder of the release.', allow_override=True
)
_NUM = flags.DEFINE_integer(
    'num', 60000, 'How many images, or rows of a table.', lower_bound=1
)
_OUT = flags.DEFINE_string(
    'out',
    None,
    'A .npz file (images uint8 [N, H, W, C], labels int32 [N]); a .parquet file, with '
    'README.md beside it as the card of a Hugging Face data set; or a folder that gets '
    'train/<class>/<index>.png (classes that are not in the order of their names have their '
    'label in front, as 0_zebra): torchvision (ImageFolder on train/), Hugging Face datasets '
    '("imagefolder") and TFDS (folder_dataset.ImageFolder) read it. Of a table a CSV file.',
    allow_override=True,
)
_SEED = flags.DEFINE_integer(
    'seed',
    None,
    'Of the latent draws; default: a new one.',
    lower_bound=0,
    upper_bound=MOST_SEED,
)
_TRUNCATION = flags.DEFINE_float(
    'truncation',
    1.0,
    'Width of the latent draws: below 1, such as 0.85, images look more like real ones, are '
    'less various, are not bent, and teach classifiers less. Releases of dpaf alone.',
    lower_bound=0.1,
    upper_bound=1.0,
)
_PRIOR = flags.DEFINE_list(
    'prior', None, "Class probabilities such as 0.5,0.5; default: the release's own."
)

LABEL = 48  # bytes of memory that making a label takes
LEAST = 64  # bytes on a disk of the smallest picture
PICTURES = ('.bmp', '.gif', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')
OTHER_FILES = (
    '.gz',
    '.h5',
    '.json',
    '.npy',
    '.pkl',
    '.tar',
    '.tfrecord',
    '.txt',
    '.zip',
)


def main(argv: Sequence[str]) -> None:
    """The command."""
    folder, place = require(argv, {'release': _RELEASE.value, 'out': _OUT.value})
    prepare_jax()
    with errors_in_one_line(pathlib.Path(place), '--out'):
        require_devices()
        made = _sample(pathlib.Path(folder), _place(pathlib.Path(place)))
    print(f'{_NUM.value} synthetic {made} in {_OUT.value}')


def _sample(folder: pathlib.Path, out: pathlib.Path) -> str:
    """Returns what was drawn: images or rows."""
    if folder.resolve() in out.resolve().parents:
        problem = 'lies in the release, which verify would then reject'
        raise UserError(f'--out: {out}', problem, 'Give a place outside')
    release = load_release(folder).truncated(_TRUNCATION.value)
    config = release.config
    suffix = out.suffix.lower()
    if suffix == '.csv' and not config.data.columns:
        remedy = 'Name a folder, or a file that ends in .npz or .parquet'
        raise UserError(f'--out: {out}', 'is for tables, not for images', remedy)
    prior = _prior(release)
    _require_room(out, release)
    labels = balanced_labels(_NUM.value, prior)
    records = config.data.records
    with Teller(print, records=records).progress('samples', len(labels)) as on_progress:
        if suffix == '.parquet':
            write_parquet(out, release, labels, _SEED.value, on_progress)
        elif suffix == '.npz' or config.data.columns:
            drawn = release.generate(labels, _SEED.value, on_progress)
            made = np.concatenate(list(drawn))
            if suffix == '.npz':
                write_npz(out, made, labels)
            else:
                write_csv(out, config.data, made, labels)
        else:
            write_folder(out, release, labels, _SEED.value, on_progress)
    return records


def _require_room(out: pathlib.Path, release: Release) -> None:
    """Refuses a set that neither the memory nor the disk could hold."""
    data = release.config.data
    record = math.prod(data.shape) * (4 if data.columns else 1)
    is_npz = out.suffix.lower() == '.npz'
    is_whole = is_npz or data.columns  # in memory, and once more to join
    needed = _NUM.value * (LABEL + (2 * record if is_whole else 0))
    there = machine_memory()
    if needed > there:
        raise UserError(
            '--num',
            f'is {_NUM.value}, which takes {size_text(needed)} of memory, and there are '
            f'{size_text(there)}',
            'Give fewer, and draw several sets'
            + ('' if LABEL * _NUM.value > there or data.columns else ', or a folder'),
        )
    least = record if is_npz else LEAST
    require_space(out.parent, _NUM.value * least)


def _place(out: pathlib.Path) -> pathlib.Path:
    """`--out`, if it is neither there nor called like one picture."""
    if out.exists():
        raise UserError(f'--out: {out}', 'exists', 'Give another --out')
    require_place(out, '--out')
    suffix = out.suffix.lower()
    if suffix in (*PICTURES, *OTHER_FILES):
        what = (
            'one picture'
            if suffix in PICTURES
            else 'a kind of file that is not written'
        )
        raise UserError(
            f'--out: {out}',
            f'is the name of {what}',
            'Name a folder, or a file that ends in .npz or .parquet; of a table .csv',
        )
    return out


def _prior(release: Release) -> tuple[float, ...]:
    if _PRIOR.value is None:
        return release.prior
    try:
        prior = tuple(float(p) for p in _PRIOR.value)
    except ValueError:
        prior = ()
    num_classes = release.config.data.num_classes
    # NaN fails the comparison of the sum.
    if len(prior) != num_classes or min(prior) < 0 or not abs(sum(prior) - 1) < 1e-6:
        raise UserError(
            '--prior',
            f'is {",".join(_PRIOR.value)}',
            f'Give {num_classes} numbers from 0 that sum to 1',
        )
    return prior


def run() -> None:
    """Entry point."""
    start(main, parse)


if __name__ == '__main__':
    run()
