"""What the machine can do at best: products of matrices, and copies."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

SIDE, ENTRIES, TRIES = 1024, 2**26, 20


def matrix_rate() -> float:
    """Operations a second in float32 products of 1024 x 1024."""
    x = jnp.ones((SIDE, SIDE))
    return 2 * SIDE**3 / _best(jax.jit(lambda x: x @ x), x)


def copy_rate() -> float:
    """Bytes a second, read and written, where 256 MiB are read and as many written."""
    x = jnp.ones(ENTRIES)
    return 2 * x.nbytes / _best(jax.jit(lambda x: x + 1), x)


def _best(fn: Callable[[Any], Any], x: Any) -> float:
    jax.block_until_ready(fn(x))
    seconds = []
    for _ in range(TRIES):
        start = time.perf_counter()
        jax.block_until_ready(fn(x))
        seconds.append(time.perf_counter() - start)
    return min(seconds)
