"""How XLA compiles for a GPU: matrix products by cuBLAS, not by kernels made for each.

A run compiles some fifteen programs of many small products. To make and time Triton kernels
for each takes most of the first minutes (docs/explanation/performance.md). The choice among
cuDNN's convolutions stays: without it (autotune level 0) convolutions were slow.
"""

import importlib
import importlib.metadata
import os
import pkgutil

FLAG = '--xla_gpu_enable_triton_gemm=false'
# XLA ends the process at a flag that it does not know (any more).
VERSIONS = ('0.10.', '0.11.')


def compile_quickly() -> None:
    """Adds `FLAG` to XLA_FLAGS where JAX has a CUDA plugin, before its first computation.

    What XLA_FLAGS says about it already is left as it is.
    """
    given = os.environ.get('XLA_FLAGS', '')
    known = importlib.metadata.version('jaxlib').startswith(VERSIONS)
    if known and FLAG.partition('=')[0] not in given and _has_cuda():
        os.environ['XLA_FLAGS'] = f'{given} {FLAG}'.strip()


def is_quick() -> bool:
    """Whether `FLAG` is set: by commands it is, from a notebook perhaps not."""
    return FLAG in os.environ.get('XLA_FLAGS', '')


def _has_cuda() -> bool:
    try:
        plugins = importlib.import_module('jax_plugins')
    except ImportError:
        return False
    names = [module.name for module in pkgutil.iter_modules(plugins.__path__)]
    return any(name.startswith('xla_cuda') for name in names)
