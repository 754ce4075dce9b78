"""What runs have found, by cell: means over generators, and what they certify."""

import statistics
from typing import Any, NamedTuple

from dpaf_jax.runtime.files import read_json
from dpaf_jax.tables.runs import Cell, Run
from dpaf_jax.tables.scales import CERTIFIED, Scale
from dpaf_jax.tables.spec import Figure

# By name: how pages call it.
FIGURES = {
    'accuracy': 'accuracy',
    'fid': 'FID',
    'is': 'Inception score',
    'fd_efficientnet_lite0': 'FD, EfficientNet-Lite0',
    'is_efficientnet_lite0': 'IS, EfficientNet-Lite0',
    'precision': 'precision',
    'recall': 'recall',
    'num_synthetic': 'images compared',
    'logistic_regression': 'logistic regression',
    'mlp': 'MLP',
    'cnn': 'CNN',
    'random_forest': 'random forest',
    'gaussian_nb': 'Gaussian NB',
    'bernoulli_nb': 'Bernoulli NB',
    'linear_svc': 'linear SVC',
    'decision_tree': 'decision tree',
    'lda': 'LDA',
    'adaboost': 'AdaBoost',
    'bagging': 'bagging',
    'gradient_boosting': 'gradient boosting',
    'xgboost': 'XGBoost',
    'average': 'average',
    'calibrated': 'calibrated',
    'success': 'success',
    'failure': 'failure',
    'anti_attack_rate': 'anti-attack rate',
}
LEGACY_MAX = 'legacy_max'  # in an evaluation: the best epoch on the test images
# As evaluations call what tables print by a short name. Figures of an InceptionV3 with
# other weights have names of their own there, and stand in no table.
EVALUATED_AS = {'inception_score': 'is'}


class Found(NamedTuple):
    """What the finished runs of a cell say.

    Attributes:
        figures: by name of FIGURES; by classifier too.
        legacy_max: by classifier and as `accuracy`, the maximum over epochs on the real test
            images, where images were held out; what older papers print.
        done: finished runs.
        asked: all runs.
        guarantee: of the releases, in their own words; '' if none is there.
        failure: why one of them failed, if one did.
    """

    figures: dict[str, Figure]
    legacy_max: dict[str, Figure]
    done: int
    asked: int
    guarantee: str
    failure: str = ''


def found(cell: Cell, scale: Scale, classifiers: tuple[str, ...]) -> Found:
    """Reads a cell's runs.

    Args:
        cell: with its runs.
        scale: says which classifier `accuracy` is.
        classifiers: the classifiers of `average`.
    """
    done = [run for run in cell.runs if run.is_done]
    figures = [_of_run(run, cell, scale, classifiers) for run in done]
    best = [_legacy_max(run, cell, scale) for run in done]
    told = {_guarantee(run) for run in done}
    # Of several the one that does not hold decides.
    guarantee = min(told, key=lambda words: words == CERTIFIED, default='')
    failure = next(filter(None, (run.failure for run in cell.runs)), '')
    return Found(
        _together(figures),
        _together(best),
        len(done),
        len(cell.runs),
        guarantee,
        failure,
    )


def _together(figures: list[dict[str, float]]) -> dict[str, Figure]:
    return {
        name: _mean([each[name] for each in figures if name in each])
        for each in figures
        for name in each
    }


def _mean(values: list[float]) -> Figure:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Figure(statistics.mean(values), spread)


def _guarantee(run: Run) -> str:
    privacy = read_json(run.workdir.release / 'privacy.json') or {}
    return privacy.get('guarantee', '')


def _of_run(
    run: Run, cell: Cell, scale: Scale, classifiers: tuple[str, ...]
) -> dict[str, float]:
    if cell.row.strategy:
        made = read_json(run.attack_file)['strategies'][cell.row.strategy]
        return {name: made[name] for name in ('success', 'failure', 'anti_attack_rate')}
    utility, fidelity = _evaluated(run, cell.row.method == 'real')
    figures = {name: each['mean'] for name, each in utility.items()}
    numbers = {
        EVALUATED_AS.get(name, name): float(value) for name, value in fidelity.items()
    }
    figures |= {name: value for name, value in numbers.items() if name in FIGURES}
    if scale.accuracy in figures:
        figures['accuracy'] = figures[scale.accuracy]
    if classifiers and all(name in figures for name in classifiers):
        figures['average'] = statistics.mean(figures[name] for name in classifiers)
    return figures


def _legacy_max(run: Run, cell: Cell, scale: Scale) -> dict[str, float]:
    if cell.row.strategy:
        return {}
    utility, _ = _evaluated(run, cell.row.method == 'real')
    best = {
        name: each[LEGACY_MAX]['mean']
        for name, each in utility.items()
        if LEGACY_MAX in each
    }
    if scale.accuracy in best:
        best['accuracy'] = best[scale.accuracy]
    return best


def _evaluated(run: Run, is_real: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    if is_real:
        made = read_json(run.workdir.nonprivate / 'evaluation.json') or {}
        return made.get('real', {}), made.get('fidelity', {})
    made = read_json(run.workdir.evaluation) or {}
    return made.get('accuracy', {}).get('synthetic', {}), made.get('fidelity', {})
