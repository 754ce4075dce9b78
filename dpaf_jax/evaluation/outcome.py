"""What classifiers are given, what they say of the test images, and its figures over seeds."""

import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

BENCH_MEAN = 'DPImageBench: mean of selected epochs'


class Labelled(NamedTuple):
    """One side of a comparison: what is learnt from, or what is tested on.

    Attributes:
        images: [N, H, W, C] uint8; of a table its rows, [N, 1, F, 1] float32.
        labels: [N] integers in [0, K).
    """

    images: np.ndarray
    labels: np.ndarray


class Outcome(NamedTuple):
    """What one trained classifier says of the test images.

    Attributes:
        predicted: [M] labels, after the last epoch.
        selected: accuracy after the epoch that did best on the images held out; None
            where none were.
        best: accuracy after the epoch that did best on the test images; None likewise.
    """

    predicted: np.ndarray
    selected: float | None = None
    best: float | None = None


def summarised(
    outcomes: list[Outcome], labels: np.ndarray, num_classes: int
) -> dict[str, Any]:
    """The figures of a classifier over its seeds.

    Args:
        outcomes: one a seed.
        labels: [M] of the test images.
        num_classes: K.

    Returns:
        `mean`, `std` (sample, ddof = 1; 0 for one seed) and `values` of the accuracy after
        the last epoch; the same in `selected` and `legacy_max`, if there is such;
        `per_class`, [K] accuracies (None for a class without test images) and `confusion`,
        [K, K] counts, row by true label, both over all seeds.
    """
    confusion = np.zeros((num_classes, num_classes), np.int64)
    for outcome in outcomes:
        np.add.at(confusion, (labels, outcome.predicted), 1)
    found = summary([float(np.mean(o.predicted == labels)) for o in outcomes])
    for name, values in (
        ('selected', [o.selected for o in outcomes if o.selected is not None]),
        ('legacy_max', [o.best for o in outcomes if o.best is not None]),
    ):
        if values:
            found[name] = summary(values)
    totals = confusion.sum(axis=1)
    per_class = [
        float(confusion[k, k] / totals[k]) if totals[k] else None
        for k in range(num_classes)
    ]
    return {**found, 'per_class': per_class, 'confusion': confusion.tolist()}


def summary(values: list[float]) -> dict[str, Any]:
    """The mean, sample standard deviation (0 for one value) and values."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {'mean': float(np.mean(values)), 'std': std, 'values': values}


def bench_mean(utility: Mapping[str, Any], suite: str) -> dict[str, float]:
    """What DPImageBench prints of its classifiers: the mean of their `selected`.

    Args:
        utility: by classifier, as `summarised` has it.
        suite: of the evaluation.

    Returns:
        One figure by its name; none of another suite, or where no epoch was selected.
    """
    selected = [
        each['selected']['mean'] for each in utility.values() if 'selected' in each
    ]
    if suite != 'dpimagebench' or not selected:
        return {}
    return {BENCH_MEAN: statistics.mean(selected)}
