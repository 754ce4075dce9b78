"""Downstream utility: train on synthetic images, test on the real test split.

The protocol of the G-PATE, GS-WGAN and DataLens line of papers, with one correction:
the accuracy reported is the last epoch's. The maximum over epochs, which some of
these papers report, selects on the real test set. Accuracies on real test images are
not private values: they belong to the run's report, not to the release.
"""

import functools
import itertools
import math
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation.classifiers import make_models, make_optimizer

AT_ONCE = 2  # trainings on CPU: one keeps little more than one core busy

ProgressFn = Callable[[int, dict[str, float]], None]


class TrainState(NamedTuple):
    """What one training run carries from step to step.

    Attributes:
        variables: of the model: 'params', and 'batch_stats' if it normalises by batches.
        opt_state: of the optimizer.
    """

    variables: Any
    opt_state: optax.OptState


def evaluate(
    train_images: np.ndarray,
    train_labels: np.ndarray,
    test_images: np.ndarray,
    test_labels: np.ndarray,
    num_classes: int,
    config: EvaluationConfig,
    seed: int = 0,
    on_progress: ProgressFn | None = None,
) -> dict[str, dict[str, Any]]:
    """Trains each classifier `config.seeds` times and measures its test accuracy.

    Args:
        train_images: [N, H, W, C] uint8, synthetic.
        train_labels: [N] integers in [0, num_classes).
        test_images: [M, H, W, C] uint8, the real test split.
        test_labels: [M] integers in [0, num_classes).
        num_classes: K.
        config: seeds, epochs, minibatch size, and which classifiers.
        seed: of initial weights, minibatches and dropout; run i uses (seed, i).
        on_progress: called as (step, {'loss': ...}) with the slowest classifier's steps so
            far, of `total_steps`, over all seeds; the loss is on synthetic images.

    Returns:
        For each classifier of `make_models`: `values`, one accuracy in [0, 1] per
        seed after the last epoch, their `mean`, and `std`, the sample standard
        deviation (ddof = 1; 0 for one seed).

    Raises:
        ValueError: for shapes or labels that do not fit together.
    """
    _check(train_images, train_labels, num_classes)
    _check(test_images, test_labels, num_classes)
    if train_images.shape[1:] != test_images.shape[1:]:
        raise ValueError(
            f'{train_images.shape[1:]} to train on, {test_images.shape[1:]} to test on'
        )
    images = jnp.asarray(train_images)
    labels = jnp.asarray(train_labels, jnp.int32)
    tell = _added_up(on_progress) if on_progress else None
    models, steps = make_models(config, num_classes), _steps(len(images), config)
    windows = {name: train_window(model, steps) for name, model in models.items()}
    slowest = next(iter(models))

    def accuracy_of(name: str, run: int) -> float:
        model, told = models[name], tell if name == slowest else None
        variables = train(
            model, windows[name], images, labels, config, [seed, run], told
        )
        return accuracy(model, variables, test_images, test_labels, config.batch_size)

    with ThreadPoolExecutor(AT_ONCE if _on_cpu() else 1) as pool:
        runs = {
            name: [pool.submit(accuracy_of, name, run) for run in range(config.seeds)]
            for name in models
        }
        try:
            wait(itertools.chain(*runs.values()), return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(cancel_futures=True)
    return {
        name: summary([each.result() for each in values])
        for name, values in runs.items()
    }


def floor(test_labels: np.ndarray) -> float:
    """The accuracy of always naming the test split's largest class."""
    return float(np.bincount(test_labels).max() / len(test_labels))


def total_steps(num_examples: int, config: EvaluationConfig) -> int:
    """A classifier's steps over all seeds: the last step `on_progress` sees."""
    return config.seeds * _steps(num_examples, config)


def _steps(num_examples: int, config: EvaluationConfig) -> int:
    batch_size = min(config.batch_size, num_examples)
    return config.epochs * math.ceil(num_examples / batch_size)


def summary(values: list[float]) -> dict[str, Any]:
    """The mean, sample standard deviation (0 for one value) and values."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {'mean': float(np.mean(values)), 'std': std, 'values': values}


def init_state(
    model: nn.Module, steps: int, image_shape: tuple[int, ...], key: jax.Array
) -> TrainState:
    """Initial weights and Adam state for images [H, W, C] and so many steps."""
    variables = model.init(key, jnp.zeros((1, *image_shape)), False)
    opt_state = make_optimizer(model, steps).init(variables['params'])
    return TrainState(variables, opt_state)


def train_window(
    model: nn.Module, steps: int
) -> Callable[..., tuple[TrainState, jax.Array]]:
    """Compiles a window of Adam steps on minibatches of a data set on the device.

    Args:
        model: from classifiers.py.
        steps: of the whole training.

    Returns:
        (state, images [N, H, W, C] uint8, labels [N] int32, indices [S, B] int32,
        key) -> (state, losses [S] float32). The state is donated.
    """
    optimizer = make_optimizer(model, steps)

    def loss_fn(params: Any, rest: Any, x: jax.Array, y: jax.Array, key: Any) -> Any:
        logits, changed = model.apply(
            {'params': params, **rest},
            x,
            True,
            rngs={'dropout': key},
            mutable=['batch_stats'],
        )
        each = optax.softmax_cross_entropy_with_integer_labels(logits, y)
        return each.mean(), changed

    @functools.partial(jax.jit, donate_argnums=0)
    def window(
        state: TrainState,
        images: jax.Array,
        labels: jax.Array,
        indices: jax.Array,
        key: jax.Array,
    ) -> tuple[TrainState, jax.Array]:
        def step(state: TrainState, batch: Any) -> tuple[TrainState, jax.Array]:
            chosen, step_key = batch
            x = images[chosen].astype(jnp.float32) / 255
            rest = dict(state.variables)
            params = rest.pop('params')
            (loss, changed), grads = jax.value_and_grad(loss_fn, has_aux=True)(
                params, rest, x, labels[chosen], step_key
            )
            updates, opt_state = optimizer.update(grads, state.opt_state)
            params = optax.apply_updates(params, updates)
            return TrainState({'params': params, **changed}, opt_state), loss

        keys = jax.random.split(key, len(indices))
        if not _on_cpu():
            return jax.lax.scan(step, state, (indices, keys))
        # XLA runs a convolution inside a loop 5 to 12 times slower on CPU, and a
        # scan of one step is still a loop.
        losses = []
        for i in range(len(indices)):
            state, loss = step(state, (indices[i], keys[i]))
            losses.append(loss)
        return state, jnp.stack(losses)

    return window


def train(
    model: nn.Module,
    window: Callable[..., tuple[TrainState, jax.Array]],
    images: jax.Array,
    labels: jax.Array,
    config: EvaluationConfig,
    seed: list[int],
    on_progress: ProgressFn | None = None,
) -> Any:
    """Trains a classifier with Adam for `config.epochs` epochs.

    Args:
        model: from classifiers.py.
        window: `train_window` of it, shared by the seeds so that it compiles once.
        images: [N, H, W, C] uint8 on the device.
        labels: [N] int32 on the device.
        config: epochs and minibatch size (at most N is used).
        seed: non-negative integers that seed everything random here.
        on_progress: called as (steps, {'loss': ...}) after each window of so many.

    Returns:
        The model's variables after the last step.
    """
    rng = np.random.default_rng(seed)
    key, init_key = jax.random.split(jax.random.key(rng.integers(2**31)))
    num_examples = len(images)
    steps = _steps(num_examples, config)
    state = init_state(model, steps, images.shape[1:], init_key)
    batch_size = min(config.batch_size, num_examples)
    steps_per_epoch = math.ceil(num_examples / batch_size)
    # A whole epoch at a time where dispatch costs more than the step.
    window_steps = 1 if _on_cpu() else steps_per_epoch
    done = 0
    for _ in range(config.epochs):
        order = rng.permutation(num_examples).astype(np.int32)
        # The last minibatch is filled up from the epoch's start: one shape to compile.
        batches = np.resize(order, (steps_per_epoch, batch_size))
        for start in range(0, steps_per_epoch, window_steps):
            indices = batches[start : start + window_steps]
            window_key = jax.random.fold_in(key, done)
            state, losses = window(state, images, labels, indices, window_key)
            done += len(indices)
            if on_progress is not None:
                on_progress(len(indices), {'loss': float(losses[-1])})
    return state.variables


def accuracy(
    model: nn.Module,
    variables: Any,
    images: np.ndarray,
    labels: np.ndarray,
    batch_size: int,
) -> float:
    """The share of images whose largest logit is their label's, in [0, 1].

    Args:
        model: from classifiers.py.
        variables: its parameters, and what it normalises by.
        images: [M, H, W, C] uint8.
        labels: [M] integers.
        batch_size: images per forward pass; only bounds memory.

    Returns:
        Accuracy without dropout.
    """
    correct = 0
    for start in range(0, len(images), batch_size):
        stop = start + batch_size
        predicted = _predict(model, variables, images[start:stop])
        correct += int((np.asarray(predicted) == labels[start:stop]).sum())
    return correct / len(images)


@functools.partial(jax.jit, static_argnums=0)
def _predict(model: nn.Module, variables: Any, images: jax.Array) -> jax.Array:
    x = images.astype(jnp.float32) / 255
    logits = model.apply(variables, x, False)
    return jnp.argmax(jnp.asarray(logits), axis=-1)


def _on_cpu() -> bool:
    return jax.default_backend() == 'cpu'


def _added_up(on_progress: ProgressFn) -> ProgressFn:
    """From steps of windows to steps so far, of trainings that go on at once."""
    lock, done = threading.Lock(), 0

    def tell(steps: int, metrics: dict[str, float]) -> None:
        nonlocal done
        with lock:
            done += steps
            on_progress(done, metrics)

    return tell


def _check(images: np.ndarray, labels: np.ndarray, num_classes: int) -> None:
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
