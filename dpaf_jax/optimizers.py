"""Optimisers by the name that a config gives."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

_MAKERS = {
    'adam': lambda rate: optax.adam(rate, b1=0.5),  # DCGAN's momentum
    'momentum': lambda rate: optax.sgd(rate, momentum=0.9),
    'sgd': optax.sgd,
}
FINAL_SHARE = 0.02  # of the learning rate, at the end of a cosine schedule


def make_optimizer(
    name: str, learning_rate: float, cosine_steps: int = 0
) -> optax.GradientTransformation:
    """Returns the optax transformation for a name that the config has checked.

    Args:
        name: 'adam', 'momentum' or 'sgd'.
        learning_rate: at the start.
        cosine_steps: steps over which it falls to almost nothing; 0: it stays.
    """
    rate: float | optax.Schedule = learning_rate
    if cosine_steps:
        rate = optax.cosine_decay_schedule(learning_rate, cosine_steps, FINAL_SHARE)
    return _MAKERS[name](rate)


def moving_average(
    average: Any, params: Any, steps: jax.Array | int, decay: float
) -> Any:
    """Moves the average of parameters towards their latest value, faster at the start.

    Args:
        average: so far, a tree.
        params: the latest, a tree of the same structure.
        steps: updates done, this one included.
        decay: per update once warm, in [0, 1); 0 keeps no average but the latest.
    """
    if decay == 0:
        return params
    warm = jnp.minimum(decay, (1 + steps) / (10 + steps))
    return optax.incremental_update(params, average, 1 - warm)
