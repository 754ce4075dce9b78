"""Downstream utility: train on synthetic images, test on the real test split.

The protocol of the G-PATE, GS-WGAN and DataLens line of papers, with one correction: the
accuracy reported is the last epoch's. Beside it stand the accuracy of the epoch that does
best on synthetic images held out for that, and, as `legacy_max`, the maximum over epochs on
the real test set, which some of these papers print. It selects on the test set; nothing here
is decided by it. Accuracies on real test images are not private values: they belong to the
run's report, not to the release.
"""

import functools
import itertools
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
from dpaf_jax.evaluation.classifiers import Recipe, make_recipes

AT_ONCE = 2  # trainings on CPU: one keeps little more than one core busy
HELD_OUT = 1 / 12  # of the synthetic images: 5000 of 60 000, as DPImageBench has it
TEST_BATCH = 500  # images of a forward pass; only bounds memory

ProgressFn = Callable[[int, dict[str, float]], None]
EpochFn = Callable[[Any], None]


class TrainState(NamedTuple):
    """What one training run carries from step to step.

    Attributes:
        variables: of the model: 'params', and 'batch_stats' if it normalises by batches.
        opt_state: of the optimizer.
        average: moving average of the parameters; () where the recipe has none.
        step: steps so far.
    """

    variables: Any
    opt_state: optax.OptState
    average: Any
    step: jax.Array

    @property
    def judged(self) -> Any:
        """The variables that are tested."""
        if isinstance(self.average, tuple):
            return self.variables
        return {**self.variables, 'params': self.average}


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
        For each classifier of `make_recipes` what `summarised` makes of its seeds.

    Raises:
        ValueError: for shapes or labels that do not fit together.
    """
    _check(train_images, train_labels, num_classes)
    _check(test_images, test_labels, num_classes)
    if train_images.shape[1:] != test_images.shape[1:]:
        raise ValueError(
            f'{train_images.shape[1:]} to train on, {test_images.shape[1:]} to test on'
        )
    kept, held_out = _held_out(len(train_images), config)
    images = jnp.asarray(train_images[kept])
    labels = jnp.asarray(train_labels[kept], jnp.int32)
    selection = (train_images[held_out], train_labels[held_out])
    tell = _added_up(on_progress) if on_progress else None
    recipes = make_recipes(config, num_classes, images.shape[-1])
    windows = {
        name: train_window(recipe, recipe.steps(len(images)))
        for name, recipe in recipes.items()
    }
    slowest = next(iter(recipes))

    def outcome_of(name: str, run: int) -> Outcome:
        judge = Judge(recipes[name].model, selection, (test_images, test_labels))
        told = tell if name == slowest else None
        variables = train(
            recipes[name], windows[name], images, labels, [seed, run], told, judge.watch
        )
        return judge.outcome(variables)

    with ThreadPoolExecutor(AT_ONCE if _on_cpu() else 1) as pool:
        runs = {
            name: [pool.submit(outcome_of, name, run) for run in range(config.seeds)]
            for name in recipes
        }
        try:
            wait(itertools.chain(*runs.values()), return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(cancel_futures=True)
    return {
        name: summarised([each.result() for each in made], test_labels, num_classes)
        for name, made in runs.items()
    }


def floor(test_labels: np.ndarray) -> float:
    """The accuracy of always naming the test split's largest class."""
    return float(np.bincount(test_labels).max() / len(test_labels))


def total_steps(num_examples: int, config: EvaluationConfig) -> int:
    """The slowest classifier's steps over all seeds: the last `on_progress` sees."""
    kept, _ = _held_out(num_examples, config)
    slowest = next(iter(make_recipes(config, 2, 1).values()))
    return config.seeds * slowest.steps(len(kept))


def _held_out(num: int, config: EvaluationConfig) -> tuple[np.ndarray, np.ndarray]:
    """Which images to train on, and which to select by: none in the quick suite."""
    order = np.arange(num)
    if config.suite == 'quick' or num < 2 / HELD_OUT:
        return order, order[:0]
    order = np.random.default_rng(0).permutation(num)
    count = round(HELD_OUT * num)
    return np.sort(order[count:]), order[:count]


class Judge:
    """Looks at a classifier after each epoch, where images are held out to select by."""

    def __init__(
        self,
        model: nn.Module,
        held_out: tuple[np.ndarray, np.ndarray],
        test: tuple[np.ndarray, np.ndarray],
    ):
        self._model, self._held_out, self._test = model, held_out, test
        self._seen: list[tuple[float, float]] = []

    def watch(self, variables: Any) -> None:
        """Notes the accuracies of one epoch."""
        if len(self._held_out[0]):
            found = (accuracy(self._model, variables, *side) for side in self._sides)
            self._seen.append((next(found), next(found)))

    @property
    def _sides(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        return self._held_out, self._test

    def outcome(self, variables: Any) -> Outcome:
        """What the variables after the last epoch predict, and what was noted before."""
        predicted = predict(self._model, variables, self._test[0])
        if not self._seen:
            return Outcome(predicted)
        # The first of the best epochs.
        _, selected = max(self._seen, key=lambda epoch: epoch[0])
        return Outcome(predicted, selected, max(test for _, test in self._seen))


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


def init_state(
    recipe: Recipe, steps: int, image_shape: tuple[int, ...], key: jax.Array
) -> TrainState:
    """Initial weights and optimizer state for images [H, W, C] and so many steps."""
    variables = recipe.model.init(key, jnp.zeros((1, *image_shape)), False)
    opt_state = recipe.optimizer(steps).init(variables['params'])
    # A copy, since the state is donated.
    average = jax.tree.map(jnp.copy, variables['params']) if recipe.ema else ()
    return TrainState(variables, opt_state, average, jnp.zeros((), jnp.int32))


def train_window(
    recipe: Recipe, steps: int
) -> Callable[..., tuple[TrainState, jax.Array]]:
    """Compiles a window of steps on minibatches of a data set on the device.

    Args:
        recipe: model and optimizer.
        steps: of the whole training.

    Returns:
        (state, images [N, H, W, C] uint8, labels [N] int32, indices [S, B] int32,
        key) -> (state, losses [S] float32). The state is donated.
    """
    model, optimizer = recipe.model, recipe.optimizer(steps)

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
            average = _averaged(state.average, params, recipe.ema, state.step)
            new = TrainState(
                {'params': params, **changed}, opt_state, average, state.step + 1
            )
            return new, loss

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


def _averaged(average: Any, params: Any, ema: float, step: jax.Array) -> Any:
    """The moving average after a step; it follows faster at first, as torch-ema does."""
    if not ema:
        return ()
    decay = jnp.minimum(ema, (2 + step) / (11 + step))
    return jax.tree.map(lambda a, p: decay * a + (1 - decay) * p, average, params)


def train(
    recipe: Recipe,
    window: Callable[..., tuple[TrainState, jax.Array]],
    images: jax.Array,
    labels: jax.Array,
    seed: list[int],
    on_progress: ProgressFn | None = None,
    on_epoch: EpochFn | None = None,
) -> Any:
    """Trains a classifier by its recipe.

    Args:
        recipe: from classifiers.py.
        window: `train_window` of it, shared by the seeds so that it compiles once.
        images: [N, H, W, C] uint8 on the device.
        labels: [N] int32 on the device.
        seed: non-negative integers that seed everything random here.
        on_progress: called as (steps, {'loss': ...}) after each window of so many.
        on_epoch: called with the variables to be judged after each epoch.

    Returns:
        The variables to be judged after the last step.
    """
    rng = np.random.default_rng(seed)
    # Threefry would take as long to compile as all the rest.
    key, init_key = jax.random.split(jax.random.key(rng.integers(2**31), impl='rbg'))
    num_examples = len(images)
    steps_per_epoch = recipe.steps_per_epoch(num_examples)
    batch_size = min(recipe.batch_size, num_examples)
    init = functools.partial(
        init_state, recipe, recipe.steps(num_examples), images.shape[1:]
    )
    state = jax.jit(init)(init_key)  # one program instead of one for each layer
    # A whole epoch at a time where dispatch costs more than the step.
    window_steps = 1 if _on_cpu() else steps_per_epoch
    done = 0
    for _ in range(recipe.epochs):
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
        if on_epoch is not None:
            on_epoch(state.judged)
    return state.judged


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
