"""Optimisers by the name that a config gives."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

# Parameters, their moving average, the optimiser's state, and how many updates are done.
Held = tuple[Any, Any, optax.OptState, jax.Array]
_DIRECTIONS = {
    'adam': lambda: optax.scale_by_adam(b1=0.5),  # DCGAN's momentum
    'momentum': lambda: optax.trace(decay=0.9),
    'sgd': optax.identity,
}
FINAL_SHARE = 0.02  # of the learning rate, at the end of a cosine schedule


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
    optimizer: optax.GradientTransformation, gradient: Any, params: Any, state: Any
) -> tuple[Any, optax.OptState]:
    """One step: the parameters after it, and the optimiser's state."""
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state


def averaged_step(
    optimizer: optax.GradientTransformation, gradient: Any, held: Held, decay: float
) -> Held:
    """One step of parameters and of their moving average; `decay` as for that."""
    params, ema_params, state, steps = held
    params, state = descend(optimizer, gradient, params, state)
    steps = steps + 1
    return params, moving_average(ema_params, params, steps, decay), state, steps


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
