"""Downstream utility: train on synthetic images, test on the real test split.

The protocol of the G-PATE, GS-WGAN and DataLens line of papers, with one correction: the
accuracy reported is the last epoch's. Beside it stand the accuracy of the epoch that does
best on synthetic images held out for that, and, as `legacy_max`, the maximum over epochs on
the real test set, which some of these papers print. It selects on the test set; nothing here
is decided by it. Accuracies on real test images are not private values: they belong to the
run's report, not to the release.
"""

import functools
import hashlib
import itertools
import math
import threading
from concurrent.futures import (
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    ThreadPoolExecutor,
    wait,
)
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation.classifiers import make_recipes
from dpaf_jax.evaluation.outcome import Labelled, Outcome, summarised
from dpaf_jax.evaluation.train import on_cpu, train, train_window
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import ProgressFn, added_up

AT_ONCE = 2  # trainings on CPU: one keeps little more than one core busy
HELD_OUT = 1 / 12  # of the synthetic images: 5000 of 60 000, as DPImageBench has it
TEST_BATCH = 500  # images of a forward pass; only bounds memory


def evaluate(
    source: Labelled,
    test: Labelled,
    num_classes: int,
    config: EvaluationConfig,
    on_progress: ProgressFn = lambda step: None,
) -> dict[str, dict[str, Any]]:
    """Trains each classifier `config.seeds` times and measures its test accuracy.

    Args:
        source: N synthetic images.
        test: M images of the real test split, of the same shape.
        num_classes: K.
        config: seeds (run i has i), epochs, minibatch size, and which classifiers.
        on_progress: given the slowest classifier's steps so far, of `work`, over all seeds.

    Returns:
        For each classifier of `make_recipes` what `summarised` makes of its seeds.

    Raises:
        UserError: a classifier diverges.
        ValueError: for shapes or labels that do not fit together.
    """
    _check(source, test, num_classes)
    trainings = _Trainings(source, test, num_classes, config, on_progress)
    with ThreadPoolExecutor(AT_ONCE if on_cpu() else 1) as pool:
        jobs = {
            name: [
                pool.submit(trainings.outcome_of, name, seed)
                for seed in range(config.seeds)
            ]
            for name in trainings.recipes
        }
        try:
            _all_or_none(list(itertools.chain(*jobs.values())))
        finally:
            trainings.are_over.set()
            pool.shutdown(cancel_futures=True)
    return {
        name: summarised([job.result() for job in made], test.labels, num_classes)
        for name, made in jobs.items()
    }


class _Trainings:
    """Trainings of all classifiers on the same images; any number may go on at once.

    Attributes:
        recipes: by the classifier's name, the slowest first.
        are_over: set, it ends each training at its next step.
    """

    def __init__(
        self,
        source: Labelled,
        test: Labelled,
        num_classes: int,
        config: EvaluationConfig,
        on_progress: ProgressFn,
    ):
        kept, held_out = _held_out(source.images, config)
        self._images = jnp.asarray(source.images[kept])
        self._labels = jnp.asarray(source.labels[kept], jnp.int32)
        self._selection = Labelled(source.images[held_out], source.labels[held_out])
        self._test = test
        self.recipes = make_recipes(config, num_classes, source.images.shape[-1])
        self._windows = {
            name: train_window(recipe, recipe.steps(len(kept)))
            for name, recipe in self.recipes.items()
        }
        self._of_slowest = added_up(on_progress)
        self.are_over = threading.Event()

    def outcome_of(self, name: str, seed: int) -> Outcome:
        """Trains one classifier; CancelledError once `are_over` is set."""
        recipe = self.recipes[name]
        monitor = EpochMonitor(recipe.model, self._selection, self._test)
        told = self._of_slowest if name == next(iter(self.recipes)) else None

        def on_window(steps: int, loss: float) -> None:
            if self.are_over.is_set():
                raise CancelledError
            if not math.isfinite(loss):
                raise UserError(
                    f'classifier {name}',
                    f'diverges on these images: its loss is {loss}',
                    'Look at the images, or choose another suite',
                )
            if told:
                told(steps)

        variables = train(
            recipe,
            self._windows[name],
            self._images,
            self._labels,
            [0, seed],
            on_window,
            monitor.watch,
        )
        return monitor.outcome(variables)


def _all_or_none(jobs: list[Future[Outcome]]) -> None:
    """Waits for all, or raises at once what the first that fails has raised."""
    ended, _ = wait(jobs, return_when=FIRST_EXCEPTION)
    for job in ended:
        job.result()


def floor(test_labels: np.ndarray) -> float:
    """The accuracy of always naming the test split's largest class."""
    return float(np.bincount(test_labels).max() / len(test_labels))


def work(images: np.ndarray, config: EvaluationConfig) -> tuple[int, int]:
    """The slowest classifier's steps over all seeds, and images of a step.

    So many steps `on_progress` of `evaluate` sees in all.
    """
    kept, _ = _held_out(images, config)
    slowest = next(iter(make_recipes(config, 2, 1).values()))
    return config.seeds * slowest.steps(len(kept)), slowest.batch_size


def _held_out(
    images: np.ndarray, config: EvaluationConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Which images to train on, and which to select by: none in the quick suite.

    Copies stay on one side. A release that deals out few images (NDPDC's) gives many.
    """
    order = np.arange(len(images))
    if config.suite == 'quick' or len(images) < 2 / HELD_OUT:
        return order, order[:0]
    first: dict[bytes, int] = {}
    digests = (hashlib.sha256(image.tobytes()).digest() for image in images)
    contents = [first.setdefault(digest, len(first)) for digest in digests]
    chosen = np.random.default_rng(0).permutation(len(first))
    is_held_out = np.isin(contents, chosen[: round(HELD_OUT * len(first))])
    return order[~is_held_out], order[is_held_out]


class EpochMonitor:
    """Looks at a classifier after each epoch, where images are held out to select by."""

    def __init__(self, model: nn.Module, held_out: Labelled, test: Labelled):
        self._model, self._held_out, self._test = model, held_out, test
        self._seen: list[tuple[float, float]] = []

    def watch(self, variables: Any) -> None:
        """Notes the accuracies of one epoch."""
        if len(self._held_out.labels):
            selected = accuracy(self._model, variables, *self._held_out)
            best = accuracy(self._model, variables, *self._test)
            self._seen.append((selected, best))

    def outcome(self, variables: Any) -> Outcome:
        """What the variables after the last epoch predict, and what was noted before."""
        predicted = predict(self._model, variables, self._test.images)
        if not self._seen:
            return Outcome(predicted)
        # The first of the best epochs.
        _, selected = max(self._seen, key=lambda epoch: epoch[0])
        return Outcome(predicted, selected, max(test for _, test in self._seen))


def accuracy(
    model: nn.Module, variables: Any, images: np.ndarray, labels: np.ndarray
) -> float:
    """The share of images whose largest logit is their label's, in [0, 1]."""
    return float(np.mean(predict(model, variables, images) == labels))


def predict(model: nn.Module, variables: Any, images: np.ndarray) -> np.ndarray:
    """The label of the largest logit of each image, without dropout.

    Args:
        model: from classifiers.py.
        variables: its parameters, and what it normalises by.
        images: [M, H, W, C] uint8.

    Returns:
        [M] int32.
    """
    batches = range(0, len(images), TEST_BATCH)
    return np.concatenate(
        [
            np.asarray(_predict(model, variables, images[start : start + TEST_BATCH]))
            for start in batches
        ]
    )


@functools.partial(jax.jit, static_argnums=0)
def _predict(model: nn.Module, variables: Any, images: jax.Array) -> jax.Array:
    x = images.astype(jnp.float32) / 255
    logits = model.apply(variables, x, False)
    return jnp.argmax(jnp.asarray(logits), axis=-1)


def _check(source: Labelled, test: Labelled, num_classes: int) -> None:
    """ValueError for shapes or labels that do not fit together."""
    for side in (source, test):
        _check_side(*side, num_classes)
    shapes = source.images.shape[1:], test.images.shape[1:]
    if shapes[0] != shapes[1]:
        raise ValueError(f'{shapes[0]} to train on, {shapes[1]} to test on')


def _check_side(images: np.ndarray, labels: np.ndarray, num_classes: int) -> None:
    if images.ndim != 4 or images.dtype != np.uint8:
        raise ValueError(
            f'images are {images.dtype} {images.shape}, not uint8 [N,H,W,C]'
        )
    if labels.shape != (len(images),) or not len(images):
        raise ValueError(f'{len(images)} images, labels of shape {labels.shape}')
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f'labels from {labels.min()} to {labels.max()} with {num_classes} classes'
        )
