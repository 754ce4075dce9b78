"""How much memory there is; what XLA frees on a CPU stays there for the next step."""

import contextlib
import ctypes
import os
import pathlib
import sys
from collections.abc import Iterator

# Of a control group: version 2, version 1.
MEMORY_LIMITS = (
    pathlib.Path('/sys/fs/cgroup/memory.max'),
    pathlib.Path('/sys/fs/cgroup/memory/memory.limit_in_bytes'),
)

# glibc's <malloc.h>
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
M_ARENA_MAX = -8


def keep_freed_memory() -> bool:
    """Stops glibc from handing freed blocks back to the kernel between steps.

    XLA frees its buffers after each call. By default a large one goes back to the kernel,
    and the next call's comes as empty pages, each of which costs a fault: more than half of
    the CPU time of a step with per-example gradients (docs/explanation/performance.md). With
    one arena, no blocks of their own for large requests and no trimming, they are used
    again. The process keeps its peak, which is some 20 % higher.

    Call it before threads start, since those keep the arenas they have.

    Returns:
        Whether this C library has taken it; others than glibc have not.
    """
    if not sys.platform.startswith('linux'):
        return False
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
    if mallopt is None:  # musl
        return False
    settings = {M_ARENA_MAX: 1, M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1}
    return all(mallopt(name, value) for name, value in settings.items())


def machine_memory() -> int:
    """Bytes of this machine, or of the container or job that the process is in."""
    machine = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    return min([machine, *_limits()])


def _limits() -> Iterator[int]:
    """Bytes that a container or a batch system leaves this process, by its control group."""
    for limit in MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # none, or 'max'
            yield int(limit.read_text())
