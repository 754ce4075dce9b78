"""Draws a synthetic data set from a release: python -m dpaf_jax.sample --help."""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags

from dpaf_jax.release.bundle import Release, balanced_labels, load_release
from dpaf_jax.release.export import write_csv, write_folder, write_npz
from dpaf_jax.release.parquet import write_parquet
from dpaf_jax.release.samplers.dpaf import truncated
from dpaf_jax.runtime.command import fail, parse, prepare_jax, require, start
from dpaf_jax.runtime.errors import UserError

_RELEASE = flags.DEFINE_string(
    'release', None, 'Folder of the release.', allow_override=True
)
_NUM = flags.DEFINE_integer('num', 60000, 'How many images.', lower_bound=1)
_OUT = flags.DEFINE_string(
    'out',
    None,
    'A .npz file (images uint8 [N, H, W, C], labels int32 [N]); a .parquet file, with '
    'README.md beside it as the card of a Hugging Face data set; or a folder that gets '
    'train/<label>/<index>.png: torchvision (ImageFolder on train/), Hugging Face datasets '
    '("imagefolder") and TFDS (folder_dataset.ImageFolder) read it. Of a table a CSV file.',
    allow_override=True,
)
_SEED = flags.DEFINE_integer('seed', None, 'Of the latent draws; default: a new one.')
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

PICTURES = ('.bmp', '.gif', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')


def main(argv: Sequence[str]) -> None:
    """The command."""
    if len(argv) > 1:
        fail(f'unknown argument {argv[1]!r}: flags start with --')
    folder, place = require(argv, {'release': _RELEASE.value, 'out': _OUT.value})
    prepare_jax()
    try:
        out = _place(pathlib.Path(place))
        release = load_release(pathlib.Path(folder))
        config = truncated(release.config, _TRUNCATION.value)
        release = dataclasses.replace(release, config=config)
        if out.suffix == '.csv' and not release.config.data.columns:
            remedy = 'Name a folder, or a file that ends in .npz or .parquet'
            raise UserError(f'--out: {out}', 'is for tables, not for images', remedy)
        labels = balanced_labels(_NUM.value, _prior(release))
        if out.suffix == '.npz':
            images = np.concatenate(list(release.generate(labels, _SEED.value)))
            write_npz(out, images, labels)
        elif out.suffix == '.parquet':
            write_parquet(out, release, labels, _SEED.value)
        elif release.config.data.columns:
            rows = np.concatenate(list(release.generate(labels, _SEED.value)))
            write_csv(out, release.config.data, rows, labels)
        else:
            write_folder(out, release, labels, _SEED.value)
    except (UserError, OSError) as error:
        fail(str(error))
    print(f'{_NUM.value} synthetic images in {_OUT.value}')


def _place(out: pathlib.Path) -> pathlib.Path:
    """`--out`, if it is neither there nor called like one picture."""
    if out.exists():
        raise UserError(f'--out: {out}', 'exists', 'Give another --out')
    if out.suffix.lower() in PICTURES:
        raise UserError(
            f'--out: {out}',
            'is the name of one picture',
            'Name a folder, or a file that ends in .npz or .parquet',
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
    if len(prior) != num_classes or min(prior) < 0 or abs(sum(prior) - 1) > 1e-6:
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
