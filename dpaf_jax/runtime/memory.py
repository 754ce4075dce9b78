"""How much memory there is; what XLA frees on a CPU stays there for the next step."""

import contextlib
import ctypes
import os
import pathlib
import sys
from collections.abc import Iterator

# Control groups, and the lines that say which ones this process is in.
GROUPS = pathlib.Path('/sys/fs/cgroup')
OWN_GROUPS = pathlib.Path('/proc/self/cgroup')

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
    """Bytes that a container or a batch system leaves this process, by its control groups.

    A container sees its own group as the root. A job of a batch system is in a group below,
    and each group above it may set a limit, too.
    """
    for limit in _limit_files():
        with contextlib.suppress(OSError, ValueError):  # none, or 'max'
            yield int(limit.read_text())


def _limit_files() -> Iterator[pathlib.Path]:
    """Of version 2 and of version 1."""
    lines = ['0::/', '1:memory:/']
    with contextlib.suppress(OSError):
        lines += OWN_GROUPS.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(':', 2)
        root, name = GROUPS, 'memory.max'
        if 'memory' in controllers.split(','):
            root, name = GROUPS / 'memory', 'memory.limit_in_bytes'
        elif controllers:
            continue
        own = root / path.lstrip('/')
        yield from (group / name for group in (own, *own.parents))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the machine, has too little memory for what was computed."""
    told = 'RESOURCE_EXHAUSTED', 'Out of memory'  # as XLA says it
    return isinstance(error, MemoryError) or any(word in str(error) for word in told)


def out_of_memory(error: BaseException) -> str:
    """What to say of it."""
    why = (str(error).splitlines() or ['too large'])[0][:200]
    return (
        f'there is too little memory ({why}). Use more devices, smaller batches or a smaller '
        'config.data.image_size; docs/howto/cluster.md says what takes memory.'
    )
