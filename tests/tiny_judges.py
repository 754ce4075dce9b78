"""Images of three classes that a classifier learns in seconds, and what it is told."""

import numpy as np
from flax import linen as nn

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation import classifiers
from dpaf_jax.evaluation.outcome import Labelled


def toy(num: int, side: int = 12, channels: int = 1, seed: int = 0):
    """Three classes, each bright in its own corner, on noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, num)
    images = rng.integers(0, 120, (num, side, side, channels), dtype=np.uint8)
    half = side // 2
    for k, (y, x) in enumerate(((0, 0), (0, half), (half, 0))):
        images[labels == k, y : y + half, x : x + half] += 100
    return Labelled(images, labels)


def settings(**fields) -> EvaluationConfig:
    usual = {'seeds': 1, 'epochs': 4, 'batch_size': 16}
    return EvaluationConfig(**{**usual, **fields})


def recipe(model: nn.Module, **fields) -> classifiers.Recipe:
    config = settings(**fields)
    return classifiers.Recipe(
        model,
        config.batch_size,
        config.epochs,
        lambda steps: classifiers.make_optimizer(model, steps),
    )
