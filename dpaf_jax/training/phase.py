"""What the loop asks of a phase, and several steps of one in one compiled call."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

Metrics = dict[str, jax.Array]  # name -> one number, on the device


class Phase(Protocol):
    """A part of training with a state of its own.

    Attributes:
        name: of its checkpoints and log lines.
        total_steps: when it is done.
    """

    name: str
    total_steps: int

    @property
    def images(self) -> float | Callable[[int], float]:
        """Of a step, expected and public, for the rate that people see.

        Where steps differ, a function of a step: images until it is reached.
        """

    def init(self) -> Any:
        """The state at step 0, as host arrays."""

    def window(self, state: Any, step: int) -> tuple[Any, int, dict[str, jax.Array]]:
        """Advances a replicated state; returns it, the step reached, and metrics."""

    def charged(self, step: int) -> Mapping[str, int]:
        """Steps of each mechanism done when this phase has reached `step`."""

    def picture(self, state: Any) -> Image.Image | None:
        """Synthetic samples of a host state; None where the phase has no generator."""


WINDOW = 10  # at most so many steps in one compiled call


def window_length(total_steps: int, unrolls: bool) -> int:
    """How many steps `repeat` takes in a compiled call, of which a run is a whole number.

    Where steps are written out one by one, one step is a program: it compiles in a tenth of
    the time, costs the host a fraction of a millisecond, and a stop does not wait for ten.
    """
    return 1 if unrolls else math.gcd(total_steps, WINDOW)


def window_steps(step: int, length: int) -> range:
    """The steps of the window that begins at `step`: up to the next multiple of `length`.

    A run that comes from a machine with shorter windows may begin within one of this
    machine's. Whole ones from there would end behind the last step, with noise that no plan
    has charged.
    """
    return range(step, step + length - step % length)


def repeat(unrolls: bool, body: Callable[..., Any], state: Any, xs: Any) -> Any:
    """Several steps in one compiled call.

    Args:
        unrolls: whether the steps are written out one by one (`Run.unrolls`), or scanned.
        body: (state, x) to (state, metrics).
        state: to start from.
        xs: a tree with a leading axis, one entry a step.

    Returns:
        The state behind the last step, and the metrics' means.
    """
    if not unrolls:
        state, metrics = jax.lax.scan(body, state, xs)
        return state, summary(metrics)
    rows = []
    for i in range(len(jax.tree.leaves(xs)[0])):
        state, row = body(state, jax.tree.map(lambda leaf, i=i: leaf[i], xs))
        rows.append(row)
    return state, summary(stack(rows))


def sometimes(
    wanted: jax.Array | np.bool_,
    step: Callable[[Any], tuple[Any, dict[str, jax.Array]]],
    state: Any,
) -> tuple[Any, dict[str, jax.Array]]:
    """A step, where it is wanted; metrics are NaN, or absent, where it is not.

    Args:
        wanted: if known already (numpy), only one of the two is compiled.
        step: state to (state, metrics).
        state: before it.
    """
    if isinstance(wanted, np.bool_):
        return step(state) if wanted else (state, {})
    shapes = jax.eval_shape(lambda s: step(s)[1], state)
    nothing = jax.tree.map(lambda s: jnp.full(s.shape, jnp.nan, s.dtype), shapes)
    return jax.lax.cond(wanted, step, lambda s: (s, nothing), state)


def stack(rows: list[dict[str, jax.Array]]) -> dict[str, jax.Array]:
    """Metrics by name over the steps that have them."""
    names = sorted(set().union(*rows))
    return {n: jnp.stack([row[n] for row in rows if n in row]) for n in names}


def summary(metrics: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Mean over a window of what its steps reported; steps without a value count not."""
    return {name: jnp.nanmean(value, axis=0) for name, value in metrics.items()}
