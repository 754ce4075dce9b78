"""Optimisers by the name that a config gives."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

_DIRECTIONS = {
    'adam': lambda: optax.scale_by_adam(b1=0.5),  # DCGAN's momentum
    'momentum': lambda: optax.trace(decay=0.9),
    'sgd': optax.identity,
}
FINAL_SHARE = 0.02  # of the learning rate, at the end of a cosine schedule


class TrainState(NamedTuple):
    """What the training of one network keeps between steps.

    As private as the gradients that it has seen: where those are noised, or of synthetic
    images alone, nothing in it is.

    Attributes:
        params, ema_params: a tree, and its moving average.
        opt_state: its optimiser's.
        steps: int32 scalar, updates done.
    """

    params: Any
    ema_params: Any
    opt_state: optax.OptState
    steps: jax.Array

    @classmethod
    def start(
        cls, params: Any, optimizer: optax.GradientTransformation
    ) -> 'TrainState':
        """Before the first update."""
        return cls(params, params, optimizer.init(params), jnp.int32(0))


def make_optimizer(
    name: str, learning_rate: float, cosine_steps: int = 0, *, bounded: bool = False
) -> optax.GradientTransformation:
    """Returns the optax transformation for a name that the config has checked.

    Args:
        name: 'adam', 'momentum' or 'sgd'.
        learning_rate: at the start.
        cosine_steps: steps over which it falls to almost nothing; 0: it stays.
        bounded: no parameter moves by more than the learning rate, as in Adam's first step.
            Later ones can be sixteen times as long where gradients grow at once.
    """
    rate: float | optax.Schedule = learning_rate
    if cosine_steps:
        rate = optax.cosine_decay_schedule(learning_rate, cosine_steps, FINAL_SHARE)
    bounds = [optax.clip(1.0)] if bounded else []
    scale = optax.scale_by_learning_rate(rate)
    return optax.chain(_DIRECTIONS[name](), *bounds, scale)


def descend(
    optimizer: optax.GradientTransformation, gradient: Any, params: Any, opt_state: Any
) -> tuple[Any, optax.OptState]:
    """One step: the parameters after it, and the optimiser's state."""
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def averaged_step(
    optimizer: optax.GradientTransformation,
    gradient: Any,
    state: TrainState,
    decay: float,
    project: Callable[[Any], Any] = lambda params: params,
) -> TrainState:
    """One step of a network's parameters, and of their moving average.

    Args:
        optimizer: whose state is `state.opt_state`.
        gradient: a tree as the parameters.
        state: before it.
        decay: as for `moving_average`.
        project: brings stepped parameters back to where they are allowed.
    """
    params, opt_state = descend(optimizer, gradient, state.params, state.opt_state)
    params, steps = project(params), state.steps + 1
    average = moving_average(state.ema_params, params, steps, decay)
    return TrainState(params, average, opt_state, steps)


def moving_average(
    ema_params: Any, params: Any, steps: jax.Array | int, decay: float
) -> Any:
    """Moves the average of parameters towards their latest value, faster at the start.

    Args:
        ema_params: so far, a tree.
        params: the latest, a tree of the same structure.
        steps: updates done, this one included.
        decay: per update once warm, in [0, 1); 0 keeps no average but the latest.
    """
    if decay == 0:
        return params
    warm = jnp.minimum(decay, (1 + steps) / (10 + steps))
    return optax.incremental_update(params, ema_params, 1 - warm)
