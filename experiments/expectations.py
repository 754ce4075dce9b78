"""Draws what the planner expects: accuracy by records per class times epsilon.

python -m experiments.expectations --out=docs/howto/expectations.png
"""

import pathlib
from collections.abc import Sequence

import matplotlib

matplotlib.use('Agg')
from absl import flags
from matplotlib import pyplot

from dpaf_jax.pipeline.outlook import FAIR, GOOD, MEASURED, ROUGH
from dpaf_jax.runtime.command import fail, parse, start

_OUT = flags.DEFINE_string('out', None, 'The PNG file.', allow_override=True)
SHOWN = {
    'mnist': ('MNIST', 'o'),
    'digits': ('digits, 8 × 8', 's'),
    'fashion_mnist': ('Fashion-MNIST', '^'),
    'celeba10k_gender': ('faces, gender', 'D'),
    'celeba10k_hair': ('faces, hair colour', 'v'),
    'cifar10': ('CIFAR-10', 'P'),
}


def draw(path: pathlib.Path) -> None:
    """One line a data set; the planner's words stand above."""
    figure, axes = pyplot.subplots(figsize=(7, 3.8), layout='constrained')
    for data, (name, marker) in SHOWN.items():
        runs = sorted((r for r in MEASURED if r.data == data), key=lambda r: r.strength)
        axes.plot(
            [r.strength for r in runs],
            [r.accuracy for r in runs],
            marker=marker,
            label=name,
        )
    words = {ROUGH: 'rough', FAIR: 'fair', GOOD: 'good'}
    for begins, word in words.items():
        axes.axvline(begins, color='0.75', linewidth=1, zorder=0)
        axes.text(begins * 1.08, 1.02, word, color='0.35')
    axes.text(33, 1.02, 'too few', color='0.35')
    axes.set(
        xscale='log',
        xlim=(30, 120000),
        ylim=(0.4, 1.08),
        xlabel='records per class × ε',
        ylabel='accuracy of a small CNN',
    )
    axes.legend(loc='lower left', fontsize='small')
    figure.savefig(path, dpi=110)


def main(argv: Sequence[str]) -> None:
    """The command."""
    if not _OUT.value:
        fail('give --out=<picture>.png')
    draw(pathlib.Path(_OUT.value))


if __name__ == '__main__':
    start(main, parse)
