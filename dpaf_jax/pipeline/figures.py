"""How figures of an evaluation are written, in the report and on the terminal."""

import math
from typing import Any

import numpy as np

from dpaf_jax.evaluation.fidelity import OTHER
from dpaf_jax.evaluation.outcome import bench_mean
from dpaf_jax.evaluation.printout import FIGURES
from dpaf_jax.pipeline.outlook import MOST_EPSILON

MODEL_NAMES = {
    'wide_resnet': 'Wide ResNet',
    'cnn': 'Small CNN',
    'logistic_regression': 'Logistic regression',
    'adaboost': 'AdaBoost',
    'bagging': 'Bagging',
    'mlp': 'Multi-layer perceptron',
    'labeller': 'Labeller',
}
FIDELITY_NAMES = FIGURES | {
    'inception_score_std': 'Inception score, deviation over ten parts',
    f'inception_score_std{OTHER}': 'Inception score, other weights, deviation',
    'is_std': 'Inception score, EfficientNet-Lite0, deviation',
    'num_real': 'Real test images compared',
    'num_synthetic': 'Synthetic images compared',
}
OWN = 'real images, in the release'  # what a release's own labeller has learnt from
CERTAIN = 2.0  # standard errors


def floor_name(config: dict[str, Any]) -> str:
    """What the floor is, by the run's public config: tables are judged by AUROC."""
    is_table = config['data']['columns']
    return 'Guessing (floor)' if is_table else 'Always the largest class (floor)'


def figure(found: dict[str, Any]) -> str:
    """Mean ± sample deviation over seeds; of one seed the figure alone."""
    mean = f'{float(found["mean"]):.3f}'
    if len(found['values']) < 2:
        return mean
    std = float(found['std'])
    return f'{mean} ± {std:.3f}' if std >= 0.0005 else f'{mean} ± < 0.0005'


def bench_figure(report: dict[str, Any]) -> dict[str, float]:
    """DPImageBench's figure of a report in its suite, by its name; else nothing."""
    suite = report['config']['evaluation']['suite']
    return bench_mean(report['accuracy'].get('synthetic', {}), suite)


def failure(report: dict[str, Any]) -> str:
    """Says that the CNN has learnt nothing to speak of; '' where it has, or none learnt.

    It must be right on more test images than whoever always names the largest class.
    Only images that one of the two gets right and the other wrong can tell. Where neither
    is better, each of these is a toss of a coin, and the difference deviates by the root
    of their number (McNemar's test): twice that is asked for.

    Args:
        report: the content of report.json.
    """
    found = report['accuracy'].get('synthetic', {}).get('cnn', {})
    if report['floor'] is None or 'confusion' not in found:
        return ''
    confusion = np.array(found['confusion'], float) / len(found['values'])
    if _beats_largest_class(confusion):
        return ''
    than = f'no better than naming the largest class ({report["floor"]:.3f})'
    epsilon = float(report['privacy']['epsilon'] or math.inf)
    remedy = (
        f'More pictures{" or a larger ε" if epsilon < MOST_EPSILON else ""} may help'
    )
    if _tells_apart(confusion):
        return (
            f'The classifier is {than}, though it tells classes apart somewhat. {remedy}; '
            'where classes are unequal, so may data.class_prior.'
        )
    return (
        f'The images taught the classifier nothing that {confusion.sum():.0f} test images '
        f'can show: it is {than}. {remedy}.'
    )


def _beats_largest_class(confusion: np.ndarray) -> bool:
    """Whether it is right more often, by more than chance; rows are true classes."""
    totals, right = confusion.sum(axis=1), np.diag(confusion)
    largest = totals.argmax()
    gained = right.sum() - right[largest]
    lost = totals[largest] - right[largest]
    return bool(gained - lost > CERTAIN * math.sqrt(gained + lost))


def _tells_apart(confusion: np.ndarray) -> bool:
    """Whether the mean over classes of the share that is right is above chance.

    Of answers that do not depend on the image it is 1 / K, whatever the classes' sizes.
    """
    totals, right = confusion.sum(axis=1), np.diag(confusion)
    there = totals > 0
    answers = confusion.sum(axis=0)[there] / confusion.sum()
    variance = answers * (1 - answers) / totals[there]
    balanced = (right[there] / totals[there]).mean()
    error = math.sqrt(variance.sum()) / there.sum()
    return bool(balanced > 1 / there.sum() + CERTAIN * error)


def fidelity_rows(fidelity: dict[str, Any]) -> list[tuple[str, Any]]:
    """Names for people, and figures."""
    return [(FIDELITY_NAMES.get(name, name), found) for name, found in fidelity.items()]
