"""Trains one classifier by its recipe, on images that lie on the device."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from dpaf_jax.evaluation.classifiers import Recipe
from dpaf_jax.networks.pieces import in_pieces

WindowFn = Callable[[int, float], None]
EpochFn = Callable[[Any], None]


class ClassifierState(NamedTuple):
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
    def evaluated(self) -> Any:
        """The variables that are tested."""
        if isinstance(self.average, tuple):
            return self.variables
        return {**self.variables, 'params': self.average}


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def init_state(
    recipe: Recipe, steps: int, image_shape: tuple[int, ...], key: jax.Array
) -> ClassifierState:
    """Initial weights and optimizer state for images [H, W, C] and so many steps."""
    variables = recipe.model.init(key, jnp.zeros((1, *image_shape)), False)
    opt_state = recipe.optimizer(steps).init(variables['params'])
    # A copy, since the state is donated.
    average = jax.tree.map(jnp.copy, variables['params']) if recipe.ema else ()
    return ClassifierState(variables, opt_state, average, jnp.zeros((), jnp.int32))


@functools.lru_cache(maxsize=16)  # a window of equal recipes compiles once
def train_window(
    recipe: Recipe, steps: int
) -> Callable[..., tuple[ClassifierState, jax.Array]]:
    """Compiles a window of steps on minibatches of a data set on the device.

    Args:
        recipe: model and optimizer.
        steps: of the whole training.

    Returns:
        (state, images [N, H, W, C] uint8, labels [N] int32, indices [S, B] int32,
        key) -> (state, losses [S] float32). The state is donated.
    """
    optimizer = recipe.optimizer(steps)

    @functools.partial(jax.jit, donate_argnums=0)
    def window(
        state: ClassifierState,
        images: jax.Array,
        labels: jax.Array,
        indices: jax.Array,
        key: jax.Array,
    ) -> tuple[ClassifierState, jax.Array]:
        step = functools.partial(_step, recipe, optimizer, images, labels)
        keys = jax.random.split(key, len(indices))
        if not on_cpu():
            return jax.lax.scan(step, state, (indices, keys))
        # XLA runs a convolution inside a loop 5 to 12 times slower on CPU, and a
        # scan of one step is still a loop.
        losses = []
        for i in range(len(indices)):
            state, loss = step(state, (indices[i], keys[i]))
            losses.append(loss)
        return state, jnp.stack(losses)

    return window


def _step(
    recipe: Recipe,
    optimizer: optax.GradientTransformation,
    images: jax.Array,
    labels: jax.Array,
    state: ClassifierState,
    batch: tuple[jax.Array, jax.Array],
) -> tuple[ClassifierState, jax.Array]:
    """One step on the images at batch[0], [B] int32, with the key batch[1]; and its loss."""
    chosen, key = batch
    x = images[chosen].astype(jnp.float32) / 255
    rest = dict(state.variables)
    params = rest.pop('params')
    (loss, changed), grads = jax.value_and_grad(_loss, has_aux=True)(
        params, rest, recipe.model, x, labels[chosen], key
    )
    updates, opt_state = optimizer.update(grads, state.opt_state)
    params = optax.apply_updates(params, updates)
    average = _averaged(state.average, params, recipe.ema, state.step)
    variables = {'params': params, **changed}
    return ClassifierState(variables, opt_state, average, state.step + 1), loss


def _loss(
    params: Any,
    rest: dict[str, Any],
    model: nn.Module,
    x: jax.Array,
    y: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, Any]:
    """Mean cross-entropy of a minibatch, and the variables in `rest` as it changed them."""
    # A model that normalises by the batch needs it whole.
    pieces, logits, changed = [x] if rest else in_pieces(x), [], {}
    for piece in pieces:
        key, dropout_key = jax.random.split(key)
        made, changed = model.apply(
            {'params': params, **rest},
            piece,
            True,
            rngs={'dropout': dropout_key},
            mutable=['batch_stats'],
        )
        logits.append(made)
    every = jnp.concatenate(logits)
    each = optax.softmax_cross_entropy_with_integer_labels(every, y)
    return each.mean(), changed


def _averaged(average: Any, params: Any, ema: float, step: jax.Array) -> Any:
    """The moving average after a step; it follows faster at first, as torch-ema does."""
    if not ema:
        return ()
    decay = jnp.minimum(ema, (2 + step) / (11 + step))
    return jax.tree.map(lambda a, p: decay * a + (1 - decay) * p, average, params)


def train(
    recipe: Recipe,
    window: Callable[..., tuple[ClassifierState, jax.Array]],
    images: jax.Array,
    labels: jax.Array,
    seed: list[int],
    on_window: WindowFn = lambda steps, loss: None,
    on_epoch: EpochFn | None = None,
) -> Any:
    """Trains a classifier by its recipe.

    Args:
        recipe: from classifiers.py.
        window: `train_window` of it, shared by the seeds so that it compiles once.
        images: [N, H, W, C] uint8 on the device.
        labels: [N] int32 on the device.
        seed: non-negative integers that seed everything random here.
        on_window: called as (steps, the loss of the last) after each window of so many.
        on_epoch: called with the variables to be evaluated after each epoch.

    Returns:
        The variables to be evaluated after the last step.
    """
    rng = np.random.default_rng(seed)
    # Threefry would take as long to compile as all the rest.
    key, init_key = jax.random.split(jax.random.key(rng.integers(2**31), impl='rbg'))
    num_examples = len(images)
    steps_per_epoch = recipe.steps_per_epoch(num_examples)
    batch_size = min(recipe.batch_size, num_examples)
    steps = recipe.steps(num_examples)
    state = init_state(recipe, steps, images.shape[1:], init_key)
    # A whole epoch at a time where dispatch costs more than the step.
    window_steps = 1 if on_cpu() else steps_per_epoch
    done = 0
    for _ in range(recipe.epochs_over(num_examples)):
        order = rng.permutation(num_examples).astype(np.int32)
        # The last minibatch is filled up from the epoch's start: one shape to compile.
        batches = np.resize(order, (steps_per_epoch, batch_size))
        for start in range(0, steps_per_epoch, window_steps):
            indices = batches[start : start + window_steps]
            window_key = jax.random.fold_in(key, done)
            state, losses = window(state, images, labels, indices, window_key)
            done += len(indices)
            on_window(len(indices), float(losses[-1]))
        if on_epoch is not None:
            on_epoch(state.evaluated)
    return state.evaluated


def on_cpu() -> bool:
    """Whether classifiers train on the machine's own cores."""
    return jax.default_backend() == 'cpu'
