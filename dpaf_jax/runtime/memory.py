"""Memory that XLA frees on a CPU stays with the process, for the next step."""

import ctypes
import sys

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
