"""The table that the command prints, and its picture."""

from typing import Any

import numpy as np
from PIL import Image

from dpaf_jax.evaluation import outcome
from dpaf_jax.evaluation.fidelity import OTHER, few_images
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.release.pictures import sample_grid

BETWEEN = 24  # pixels between the real and the synthetic side
FIGURES = {
    'fid': 'FID',
    'inception_score': 'Inception score',
    f'fid{OTHER}': 'Fréchet distance, Inception, other weights',
    f'inception_score{OTHER}': 'Inception score, other weights',
    'fd_efficientnet_lite0': 'Fréchet distance, EfficientNet-Lite0 (not FID)',
    'precision': 'Precision',
    'recall': 'Recall',
    'density': 'Density',
    'coverage': 'Coverage',
    'is_efficientnet_lite0': 'Inception score, EfficientNet-Lite0',
}


def table(report: dict[str, Any]) -> str:
    """What was measured, as text.

    Args:
        report: of the command: `synthetic`, and `real` where real training images were
            measured, each with `utility` and `fidelity`; `settings`; `floor`; `notices`.
    """
    real = report.get('real') or {'utility': {}, 'fidelity': {}}
    lines = []
    if report['synthetic']['utility']:
        lines.append(_row('Accuracy on real test images', 'synthetic', 'real', 'share'))
        for name, found in report['synthetic']['utility'].items():
            ceiling = real['utility'].get(name)
            share = report['calibrated'].get(name) if ceiling else None
            lines.append(
                _row(
                    f'  {name}',
                    _spread(found),
                    _spread(ceiling) if ceiling else '–',
                    f'{share:.3f}' if share else '–',
                )
            )
            for also in ('selected', 'legacy_max'):
                if also in found:
                    lines.append(_row(f'    {also}', _spread(found[also]), '', ''))
        suite = report['settings'].get('suite', '')
        means = [
            outcome.bench_mean(side['utility'], suite)
            for side in (report['synthetic'], real)
        ]
        for name in means[0]:
            lines.append(
                _row(f'  {name}', *(f'{side[name]:.3f}' for side in means if side))
            )
        lines.append(_row('  always the largest class', f'{report["floor"]:.3f}'))
    else:
        lines.append(
            'No accuracy: one side, or both, has one class alone. Class sub-folders, or a '
            'labels.csv, name several.'
        )
    fidelity = report['synthetic']['fidelity']
    if fidelity:
        number = f'{fidelity["num_synthetic"]} and {fidelity["num_real"]} images'
        lines += ['', _row(f'Fidelity, {number}', 'synthetic', 'real')]
        for key in filter(fidelity.__contains__, FIGURES):
            floor = real['fidelity'].get(key)
            shown = '–' if floor is None else f'{floor:.3f}'
            lines.append(_row(f'  {FIGURES[key]}', f'{fidelity[key]:.3f}', shown))
        if warning := few_images(fidelity):
            lines.append(warning)
    return '\n'.join([*lines, '', *report['notices']]).rstrip()


def _row(name: str, *cells: str) -> str:
    return f'{name:50}' + ''.join(f'{cell:>17}' for cell in cells)


def _spread(found: dict[str, Any]) -> str:
    """A figure of one seed has no deviation."""
    text = f'{found["mean"]:.3f}'
    return f'{text} ± {found["std"]:.3f}' if len(found['values']) > 1 else text


def side_by_side(real: Labelled, synthetic: Labelled, num_classes: int) -> Image.Image:
    """Real images on the left, synthetic ones on the right, a row per class; private."""
    left, right = (
        sample_grid(side.images, side.labels, num_classes) for side in (real, synthetic)
    )
    gap = np.zeros((left.height, BETWEEN, 4), np.uint8)
    return Image.fromarray(np.hstack([np.asarray(left), gap, np.asarray(right)]))
