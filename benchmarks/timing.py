"""Interleaved timings: what disturbs one candidate disturbs all of them alike."""

import json
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np


class Timing(NamedTuple):
    """Medians of one candidate.

    Attributes:
        wall: seconds of a call.
        cpu: seconds of all cores together; steadier than `wall` on a busy machine.
    """

    wall: float
    cpu: float

    @property
    def cost(self) -> float:
        """What is compared: CPU time where the CPU computes, else wall time."""
        return self.cpu if jax.default_backend() == 'cpu' else self.wall


def interleaved(
    candidates: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, Timing]:
    """Calls all candidates in turn, `rounds` times, after one call each to warm up.

    Args:
        candidates: calls without arguments that return when, or with what, is computed.
        rounds: at least 1.
    """
    for call in candidates.values():
        jax.block_until_ready(call())
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            start = time.perf_counter(), time.process_time()
            jax.block_until_ready(call())
            end = time.perf_counter(), time.process_time()
            seen[name].append((end[0] - start[0], end[1] - start[1]))
    return {
        name: Timing(*(float(x) for x in np.median(times, axis=0)))
        for name, times in seen.items()
    }


def peak_mib() -> float:
    """Of this process's memory so far; Linux counts in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def machine() -> dict[str, Any]:
    """What the figures hold for, and the most memory that an accelerator's program took."""
    device = jax.local_devices()[0]
    peak = (device.memory_stats() or {}).get('peak_bytes_in_use')
    return {
        **({'device_peak_mib': round(peak / 2**20)} if peak else {}),
        'device': device.device_kind,
        'devices': len(jax.local_devices()),
        'cores': os.cpu_count(),
        'machine': platform.machine(),
        'jax': jax.__version__,
    }


def print_result(result: Mapping[str, Any]) -> None:
    """One JSON object, as the last line."""
    rounded = {
        name: float(f'{value:.4g}') if isinstance(value, float) else value
        for name, value in result.items()
    }
    print(json.dumps(rounded | {'machine': machine()}))
