"""The class distribution from a Laplace histogram, with a share of epsilon of its own.

Guarantee: (1 / b, 0)-DP, exactly, and the Laplace mechanism of scale b is an upper bound.
Emptying one record lowers one count by 1. The release is that of Laplace noise of scale b,
each noisy count then rounded to the middle of its cell [k, k + 1). Counts are whole, so that
adds to each count a draw of a law of its own, whatever the counts:

    P[g + 1/2] = P[-g - 1/2] = exp(-g / b) (1 - exp(-1 / b)) / 2,    g = 0, 1, 2, ...

As post-processing of the Laplace mechanism it costs at most what `LaplaceDpEvent(b)` costs,
at every delta. (The usual discrete Laplace law, exp(-|k| / b) on whole k, has the same pure
epsilon, but at a delta above 0 it costs more: it is randomised response.) No float takes part
in a draw: b is a fraction, all coins are whole numbers, and no value has another probability
than the law says.

Sources: G-PATE, section 6.2; Canonne, Kamath and Steinke 2020, "The discrete Gaussian for
differential privacy", algorithms 1 and 2 (how to draw with probability exp(-x) exactly).
"""

import numpy as np

from dpaf_jax.privacy.plan import Mechanism

CLASSES = 'classes'


def class_histogram(num_examples: int, epsilon: float) -> Mechanism:
    """The mechanism, (epsilon, 0)-DP; without noise for an infinite one."""
    return Mechanism(
        name=CLASSES,
        kind='number of records in each class',
        sampling_prob=1.0,
        l2_sensitivity=1.0,
        steps=1,
        expected_batch_size=float(num_examples),
        capacity=num_examples,
        noise_multiplier=1 / epsilon,
        law='laplace',
    )


def shares(noisy: np.ndarray) -> np.ndarray:
    """[K] float32 class probabilities of noisy counts; a class has one record at least."""
    least = np.maximum(noisy, 1.0)
    return (least / least.sum()).astype(np.float32)


def counts(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """[K] whole numbers, exact: NOT private."""
    return np.bincount(labels, minlength=num_classes)


def add_laplace(
    exact: np.ndarray, scale: float, rng: np.random.Generator
) -> np.ndarray:
    """The release itself: [K] float64, in the middle between whole numbers.

    Args:
        exact: [K] whole numbers.
        scale: b, the mechanism's `noise_std`; 0 adds nothing.
        rng: coins of this mechanism alone.
    """
    if not scale:
        return exact.astype(np.float64)
    noise = [rounded_laplace(scale, rng) for _ in exact]
    released: np.ndarray = exact + np.array(noise)
    return released


def rounded_laplace(scale: float, rng: np.random.Generator) -> float:
    """A draw of the module's law, exact.

    Args:
        scale: b, above 0; the float stands for the fraction that it is.
        rng: of bits alone.
    """
    steps, unit = scale.as_integer_ratio()
    while not _exp_coin(within := _below(steps, rng), steps, rng):
        pass
    wholes = 0
    while _exp_coin(1, 1, rng):
        wholes += 1
    distance = (within + steps * wholes) // unit  # P[distance >= g] = exp(-g / b)
    return distance + 0.5 if _below(2, rng) else -distance - 0.5


def _exp_coin(numerator: int, denominator: int, rng: np.random.Generator) -> bool:
    """True with probability exp(-numerator / denominator), of a fraction in [0, 1]."""
    k = 1
    while _below(k * denominator, rng) < numerator:
        k += 1
    return k % 2 == 1


def _below(number: int, rng: np.random.Generator) -> int:
    """One of 0, ..., number - 1, all equally likely: NumPy draws again what would not fit."""
    return int(rng.integers(number))
