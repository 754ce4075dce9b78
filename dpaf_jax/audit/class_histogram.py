"""The noisy class histogram for the audit: a Laplace release of its own, and its coins.

It comes in front of any method (`data.noisy_prior`) and runs on the host.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpaf_jax.audit import canaries
from dpaf_jax.audit.target import AuditTarget, Scene, Trace
from dpaf_jax.config import Config
from dpaf_jax.privacy import class_histogram
from dpaf_jax.privacy.class_histogram import CLASSES
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.batch import ClipBatch

CROWD = 96  # records of a draw of many


def audit_target(config: Config, plan: PrivacyPlan) -> AuditTarget:
    """The target of the plan's class histogram."""
    shape = math.lcm(config.data.num_classes, 2), 1
    batch, crowd = (
        canaries.batch(np.zeros((number, 1, 1, 1), np.uint8), config.data, (number, 1))
        for number in (shape[0], CROWD)
    )
    scale = plan[CLASSES].noise_std

    def exact(batch: ClipBatch) -> np.ndarray:
        labels = batch.labels[~batch.is_padding_example]
        return class_histogram.counts(labels, config.data.num_classes)

    def noisy(batch: ClipBatch, key: np.ndarray) -> np.ndarray:
        return class_histogram.add_laplace(exact(batch), scale, _coins(key))

    def each(release: Callable[[ClipBatch, np.ndarray], np.ndarray]) -> Any:
        def many(_: Any, batch: ClipBatch, keys: np.ndarray) -> np.ndarray:
            return np.array([release(batch, key) for key in keys], np.float64)

        return {1: many}

    return AuditTarget(
        mechanism=plan[CLASSES],
        release=each(noisy),
        exact=each(lambda batch, _: exact(batch)),
        scenes=[Scene(None, batch)],
        crowd=Scene(None, crowd),
    )


def _coins(key: np.ndarray) -> np.random.Generator:
    """A run's generator for one key, [8] uint32 or the [2] uint64 of a generator."""
    return np.random.Generator(np.random.Philox(key=key.view(np.uint64)[:2]))


def noted(trace: Trace, keys: RunKeys) -> Trace:
    """The trace with the key of the coins from which the histogram's noise comes."""
    state: Any = keys.lasting(CLASSES).bit_generator.state
    key = np.array([state['state']['key']])
    return dataclasses.replace(trace, keys={**trace.keys, CLASSES: key})
