"""Membership inference on a release: can training images be told from held-out ones?

Members are training images, non-members held-out images; half of the latter are the
attacker's reference and are not scored. All attacks see the generator's output alone.
A find is called by a permutation test over all scores together; a violation where, in
addition, an interval lies above what epsilon permits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from dpaf_jax.attack import permutation
from dpaf_jax.attack.permutation import ALARM, Findings, permutation_test, tops
from dpaf_jax.attack.roc import (
    LEAST,
    RATES,
    Roc,
    measurable,
    permitted_auc,
    permitted_tpr,
)
from dpaf_jax.attack.roc_picture import roc_picture
from dpaf_jax.attack.scores import SCORERS
from dpaf_jax.attack.target import Target
from dpaf_jax.runtime.errors import UserError

MOST = 10000  # members scored, and non-members
FEWEST = 2 * LEAST  # of either
WIDTH = 26  # of a column


def run(target: Target) -> dict[str, Any]:
    """Attacks, writes figures and ROC curves, and returns the figures.

    Raises:
        UserError: there are too few images to say anything.
    """
    curves = attack(target)
    one = next(iter(curves.values()))
    points = measurable(len(one.non_members))
    # Every interval of the table: an AUC and two rates at each point, for each score.
    alpha = ALARM / (len(curves) * (1 + 2 * len(points)))
    findings = look(curves, target.records)
    made: dict[str, Any] = {
        'records': target.records,
        'members': len(one.members),
        'non_members': len(one.non_members),
        'synthetic': len(target.synthetic),
        'guarantee': target.privacy['guarantee'],
        'attacks': {name: figures(roc, points, alpha) for name, roc in curves.items()},
        'not_measurable': [r for r in RATES if r not in points],
        'chance': findings.to_json(),
        'permitted': None,
    }
    bound = _bound(target.privacy)
    if bound:
        made['permitted'] = permitted(made['attacks'], *bound)
    made['violations'] = violations(made)
    made['found'] = findings.found
    made['verdict'] = verdict(made)
    target.write_json('membership', made)
    target.write_png('membership_roc', roc_picture(curves, alpha, bound))
    return made


def attack(
    target: Target, scorers: Sequence[Callable[..., Any]] = SCORERS
) -> dict[str, Roc]:
    """Scores by attack, of all members and of half of the others, at most MOST each."""
    rng = np.random.default_rng(0)
    held_out = rng.permutation(len(target.non_members))
    half = len(held_out) // 2
    if half < FEWEST or len(target.members) < FEWEST:
        raise UserError(
            '--workdir',
            f'has {len(target.members)} training and {len(held_out)} held-out '
            f'{target.records}',
            f'Membership inference needs at least {FEWEST} and {2 * FEWEST} '
            '(config.data.test_fraction)',
        )
    reference = target.non_members[np.sort(held_out[:half])]
    out = target.non_members[np.sort(held_out[half:][:MOST])]
    number = min(len(target.members), MOST)
    chosen = rng.choice(len(target.members), number, replace=False)
    records = np.concatenate([target.members[np.sort(chosen)], out])
    found = {}
    for scorer in scorers:
        for name, scores in scorer(records, target.synthetic, reference).items():
            found[name] = Roc(scores[:number], scores[number:])
    return found


def look(curves: dict[str, Roc], records: str) -> Findings:
    """What the scores show beyond chance: over all records, and among their surest."""
    one = next(iter(curves.values()))
    members, number = len(one.members), len(one.members) + len(one.non_members)
    weights = {}
    for name, roc in curves.items():
        scores = np.concatenate([roc.members, roc.non_members])
        # Their sum over the members is the AUC (Mann and Whitney 1947).
        ranks = stats.rankdata(scores) - (members + 1) / 2
        weights[f'{name}, AUC'] = ranks / members / (number - members)
        ordered = np.sort(scores)
        for top in tops(number // 2):
            surest = scores >= ordered[-top]  # more than `top` where scores are equal
            what = f'{name}, share of training {records} among its {top} surest'
            weights[what] = surest / surest.sum()
    return permutation_test(weights, np.arange(number) < members)


def figures(roc: Roc, points: dict[float, int], alpha: float) -> dict[str, Any]:
    """AUC, and both rates at every point, each with its interval."""
    return {
        'auc': roc.auc(alpha)._asdict(),
        'points': {
            f'{rate:g}': roc.point(count, alpha).to_json()
            for rate, count in points.items()
        },
    }


def _bound(privacy: dict[str, Any]) -> tuple[float, float] | None:
    epsilon = privacy.get('epsilon')
    return None if epsilon is None else (epsilon, privacy['delta'])


def permitted(attacks: dict[str, Any], epsilon: float, delta: float) -> dict[str, Any]:
    """The most that a guarantee permits, at the right end of each FPR's interval."""
    points = next(iter(attacks.values()))['points']
    return {
        'epsilon': epsilon,
        'delta': delta,
        'auc': permitted_auc(epsilon, delta),
        'points': {
            rate: float(permitted_tpr(point['fpr']['high'], epsilon, delta))
            for rate, point in points.items()
        },
    }


def violations(made: dict[str, Any]) -> list[str]:
    """Where a find is larger than permitted, the clearest first."""
    most = made['permitted']
    if most is None or not made['chance']['found']:
        return []
    found = []
    for name, seen in made['attacks'].items():
        cells = [('AUC', seen['auc'], most['auc'])]
        for rate, point in seen['points'].items():
            cells.append((_head(float(rate)), point['tpr'], most['points'][rate]))
        found += [
            (cell['low'] - limit, f'{name}, {what}: at least {cell["low"]:.4f}, '
             f'permitted {limit:.4f}')
            for what, cell, limit in cells
            if cell['low'] > limit
        ]  # fmt: skip
    return [text for _, text in sorted(found, reverse=True)]


def verdict(made: dict[str, Any]) -> str:
    """One sentence, or a few."""
    if made['violations']:
        first, *others = made['violations']
        more = f', and {len(others)} more' if others else ''
        return (
            f'VIOLATION: more than epsilon = {made["permitted"]["epsilon"]:.4g} permits '
            f'({first}{more}; p = {made["chance"]["p_value"]:.4f}). {permutation.CAVEAT}'
        )
    records = made['records']
    if not made['found']:
        return permutation.nothing(
            f'no score tells training {records} from held-out ones better than chance',
            made['chance'],
        )
    if made['permitted']:
        within = f'Epsilon = {made["permitted"]["epsilon"]:.4g} permits that much.'
    else:
        within = f'Nothing is promised against it ({made["guarantee"]}).'
    what = f'training {records} can be told from held-out ones'
    return permutation.something(what, made['chance'], within)


def table(made: dict[str, Any]) -> str:
    """The figures, one score a line, and the verdict."""
    first = next(iter(made['attacks'].values()))
    rates = list(first['points'])
    heads = ['AUC', *(_head(float(rate)) for rate in rates)]
    lines = [_line('', heads)]
    for name, seen in made['attacks'].items():
        tprs = [point['tpr'] for point in seen['points'].values()]
        cells = [
            f'{c["value"]:.4f} [{c["low"]:.4f}, {c["high"]:.4f}]'
            for c in (seen['auc'], *tprs)
        ]
        lines.append(_line(name, cells))
    looks = made['chance']['looks']
    auc = max(looks[f'{name}, AUC']['limit'] for name in made['attacks'])
    chance = [auc, *(first['points'][rate]['fpr']['high'] for rate in rates)]
    lines.append(_line('by chance, at most', [f'{x:.4f}' for x in chance]))
    if made['permitted']:
        most = [made['permitted']['auc'], *made['permitted']['points'].values()]
        lines.append(_line('permitted, at most', [f'{x:.4f}' for x in most]))
    else:
        lines.append(f'permitted: anything ({made["guarantee"][:60]})')
    number = made['non_members']
    for rate in made['not_measurable']:
        lines.append(f'{_head(rate)}: not measurable with {number} non-members')
    one = made['records'][:-1]
    lines += [
        f'{made["members"]} members (training {made["records"]}), {number} non-members '
        f'(held-out), {made["synthetic"]} synthetic {made["records"]}; all intervals '
        f'hold together at {100 * (1 - ALARM):g} %',
        f'AUC: the chance that a training {one} scores above a held-out {one}; 0.5 is '
        'guessing',
        f'TPR at FPR x: the share of training {made["records"]} above a threshold that a '
        f'share x of held-out ones exceed; chance and permission at the right end of its '
        'interval',
    ]
    return '\n'.join([*lines, '', made['verdict']])


def _head(rate: float) -> str:
    return f'TPR at FPR {100 * rate:.3g} %'


def _line(name: str, cells: list[str]) -> str:
    return f'{name:<22}' + ''.join(f'{cell:>{WIDTH}}' for cell in cells)
