"""Membership inference on a release: can training images be told from held-out ones?

Members are training images, non-members held-out images; half of the latter are the
attacker's reference and are not scored. All attacks see the generator's output alone.
"""

from typing import Any

import numpy as np
from PIL import Image

from dpaf_jax.attack import gan_leaks, logan, monte_carlo
from dpaf_jax.attack.plots import BLUE, GREEN, GREY, INK, RED, Axis, Curve, line_plot
from dpaf_jax.attack.roc import RATES, Roc, permitted, permitted_tpr
from dpaf_jax.attack.target import Target
from dpaf_jax.runtime.errors import UserError

SCORERS = (gan_leaks.scores, monte_carlo.scores, logan.scores)
MOST = 10000  # members scored, and non-members
COLOURS = (BLUE, '#7aa7f0', GREEN, '#d08a1d')
LEAST_FPR = 1e-4  # where the plot begins


def run(target: Target) -> dict[str, Any]:
    """Attacks, writes figures and ROC curves, and returns the figures.

    Raises:
        UserError: there are too few images to say anything.
    """
    curves = attack(target)
    bound = _bound(target.privacy)
    made = {
        'members': len(next(iter(curves.values())).members),
        'non_members': len(next(iter(curves.values())).non_members),
        'synthetic': len(target.synthetic),
        'records': target.records,
        'attacks': {name: roc.summary() for name, roc in curves.items()},
        'guarantee': target.privacy['guarantee'],
        'permitted': permitted(*bound) if bound else None,
        'permitted_by': 'epsilon and delta for one record; none where nothing is certified',
    }
    target.write_json('membership', made)
    target.write_png('membership_roc', _plot(curves, bound))
    return made


def attack(target: Target) -> dict[str, Roc]:
    """Scores by attack, of as many members as non-members as there are, at most MOST."""
    coins = np.random.default_rng(0)
    held_out = coins.permutation(len(target.non_members))
    half = len(held_out) // 2
    if half < 10 or len(target.members) < 10:
        raise UserError(
            '--workdir',
            f'has {len(target.members)} training and {len(held_out)} held-out '
            f'{target.records}',
            'Membership inference needs at least 10 and 20 (config.data.test_fraction)',
        )
    reference = target.non_members[np.sort(held_out[:half])]
    out = target.non_members[np.sort(held_out[half:][:MOST])]
    number = min(len(target.members), MOST)
    chosen = coins.choice(len(target.members), number, replace=False)
    records = np.concatenate([target.members[np.sort(chosen)], out])
    found = {}
    for scorer in SCORERS:
        for name, scores in scorer(records, target.synthetic, reference).items():
            found[name] = Roc(scores[:number], scores[number:])
    return found


def _bound(privacy: dict[str, Any]) -> tuple[float, float] | None:
    epsilon = privacy.get('epsilon')
    return None if epsilon is None else (epsilon, privacy['delta'])


def table(found: dict[str, Any]) -> str:
    """The figures, one attack a line."""
    names = ['auc', *(f'tpr_at_fpr_{rate:g}' for rate in RATES)]
    heads = ['AUC', *(f'TPR at FPR {rate:.1%}' for rate in RATES)]
    lines = [f'{"":<22}' + ''.join(f'{head:>26}' for head in heads)]
    for attack_name, figures in found['attacks'].items():
        cells = [_cell(figures[name]) for name in names]
        lines.append(f'{attack_name:<22}' + ''.join(f'{cell:>26}' for cell in cells))
    lines.append(f'{"guessing":<22}' + _cells([0.5, *RATES]))
    if found['permitted']:
        most = [found['permitted'][name] for name in names]
        lines.append(f'{"permitted, at most":<22}' + _cells(most))
    else:
        lines.append(f'permitted: anything ({found["guarantee"][:60]})')
    lines.append(
        f'{found["members"]} members, {found["non_members"]} non-members, '
        f'{found["synthetic"]} synthetic {found["records"]}; 95 % bootstrap intervals'
    )
    return '\n'.join(lines)


def _cell(figure: dict[str, float]) -> str:
    return f'{figure["value"]:.4f} [{figure["low"]:.4f}, {figure["high"]:.4f}]'


def _cells(values: list[float]) -> str:
    return ''.join(f'{value:>26.4f}' for value in values)


def _plot(curves: dict[str, Roc], bound: tuple[float, float] | None) -> Image.Image:
    grid = np.logspace(np.log10(LEAST_FPR), 0, 400)
    drawn = [Curve('guessing', grid, grid, GREY, 'dashes')]
    title = 'Membership inference on the release    NOT PRIVATE'
    if bound:
        most = permitted_tpr(grid, *bound)
        label = f'permitted by epsilon {bound[0]:g}'
        drawn.append(Curve(label, grid, most, RED, 'dashes'))
    for (name, roc), colour in zip(curves.items(), COLOURS, strict=True):
        fpr, tpr = roc.curve()
        drawn.append(Curve(f'{name}  AUC {roc.auc():.3f}', fpr, tpr, colour or INK))
    x = Axis('false positive rate', LEAST_FPR, 1, log=True)
    return line_plot(
        drawn, title, x, Axis('true positive rate', LEAST_FPR, 1, log=True)
    )
