"""Several steps in one compiled call: scanned on accelerators, unrolled on CPU."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.training.run import Run


def repeat(run: Run, body: Callable[..., Any], state: Any, xs: Any) -> Any:
    """Steps over the leading axis of `xs`: unrolled or scanned; state and metrics."""
    if not run.unrolls:
        state, metrics = jax.lax.scan(body, state, xs)
        return state, summary(metrics)
    rows = []
    for i in range(len(jax.tree.leaves(xs)[0])):
        state, row = body(state, jax.tree.map(lambda leaf, i=i: leaf[i], xs))
        rows.append(row)
    return state, summary(stack(rows))


def stack(rows: list[dict[str, jax.Array]]) -> dict[str, jax.Array]:
    """Metrics by name over the steps that have them."""
    names = sorted(set().union(*rows))
    return {n: jnp.stack([row[n] for row in rows if n in row]) for n in names}


def summary(metrics: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Mean over a window of what its steps reported; steps without a value count not."""
    return {name: jnp.nanmean(value, axis=0) for name, value in metrics.items()}
