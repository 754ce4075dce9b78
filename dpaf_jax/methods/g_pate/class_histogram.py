"""The class distribution from a Laplace histogram, with a budget of its own.

Guarantee: emptying one record lowers one count by 1, so Laplace noise of scale b on every
count is (1 / b, 0)-DP. Counts are whole and the noise is rounded to multiples of 2^-20:
that is the rounding of the sum, whatever the counts, so it is post-processing. A float64
draw has no values beyond about 37 b, where the law has a mass of 1e-16: far below any delta.

Source: G-PATE, section 6.2.
"""

import numpy as np

from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.training.run import Run

CLASSES = 'classes'
SPACING = 2.0**-20


def class_histogram(num_examples: int) -> Mechanism:
    """The mechanism, its noise still open."""
    return Mechanism(
        name=CLASSES,
        kind='number of records in each class',
        sampling_prob=1.0,
        l2_sensitivity=1.0,
        steps=1,
        expected_batch_size=float(num_examples),
        capacity=num_examples,
        law='laplace',
    )


def noisy_prior(run: Run) -> np.ndarray:
    """[K] float32 class probabilities; every class counts one record at least."""
    noisy = np.maximum(noisy_counts(run), 1.0)
    return (noisy / noisy.sum()).astype(np.float32)


def noisy_counts(run: Run) -> np.ndarray:
    """[K] float64: all that leaves the labels."""
    return add_laplace(class_counts(run), run)


def class_counts(run: Run) -> np.ndarray:
    """[K] whole numbers, exact: NOT private."""
    return np.bincount(run.data.labels, minlength=run.config.data.num_classes)


def add_laplace(counts: np.ndarray, run: Run) -> np.ndarray:
    """The release itself: [K] float64, on the grid.

    Args:
        counts: [K] whole numbers.
        run: its plan and its keys; the coins are of this mechanism alone.
    """
    scale = run.plan[CLASSES].noise_std
    noise = run.keys.coins(CLASSES, 0).laplace(0.0, 1.0, len(counts)) * scale
    released: np.ndarray = counts + np.rint(noise / SPACING) * SPACING
    return released
