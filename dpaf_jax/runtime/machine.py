"""What of a machine and its environment shapes the bits that a program computes here.

XLA compiles for the processor it finds, splits sums among the threads it is given, and
picks kernels by driver and libraries. So a step that is computed elsewhere may round
otherwise. What stays the same over a reboot is told here, and nothing else.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg  # noqa: F401 (JAX takes LAPACK from it: told once it is loaded)
import threadpoolctl

from dpaf_jax.runtime import gpu_compiler

try:
    from jax._src.lib import cuda_versions  # they have no public name
except ImportError:  # with another JAX not this one either
    cuda_versions = None

# Of /proc/cpuinfo, on x86 and on ARM. Stepping and microcode mend a processor, clock and
# bogomips vary from boot to boot; the cache decides how products are cut into blocks.
MODEL = re.compile(
    r'vendor_id|cpu family|model|model name|cache size|'
    r'CPU (implementer|architecture|variant|part)'
)
# Vectors alone: what a kernel tells of virtual memory and mitigations changes with it.
INSTRUCTIONS = {
    'flags': re.compile(r'(s?sse|avx|amx|fma|f16c|xop)\w*'),
    'Features': re.compile(r'(v?fp|neon|asimd|sve|sme|i8mm|bf16)\w*'),
}

VARIABLES = re.compile(
    r'XLA_|TF_|CUDA_|CUBLAS|CUDNN|NVIDIA_TF32_OVERRIDE|NCCL_(ALGO|PROTO)$|LIBTPU_INIT_ARGS'
    r'|(PJRT_)?NPROC$|OMP_NUM_THREADS|(OPENBLAS|GOTO|MKL|BLIS|VECLIB|DNNL|ONEDNN)_'
)
# Names of devices (their kind and number are told elsewhere), caches of programs that are
# found again by their content, what is logged, and who else is in a cluster.
HARMLESS_VARIABLES = re.compile(
    r'CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|CACHE_|MPS_(PIPE|LOG)_DIRECTORY)|TF_CPP_|TF_CONFIG'
    # Terraform's, of which some are secrets.
    r'|TF_(TOKEN|VAR|CLI|CLOUD|LOG|DATA_DIR|WORKSPACE|IN_AUTOMATION|INPUT)(_|$)'
)
HARMLESS_SETTINGS = re.compile(
    r'jax_('
    r'compilation_cache|enable_compilation_cache|persistent_cache|raise_persistent_cache'
    r'|platform|\w+_visible_devices'
    r'|log|explain_|dump_|debug_log|traceback|include_full_traceback|compiler_detailed'
    r'|cross_host_trans|enable_preemption|enable_recover|\w+_timeout'
    r')'
)

CUDA_LIBRARIES = ('cuda_runtime', 'cudnn', 'cublas', 'cufft', 'cusolver', 'cusparse')
CUDA_DRIVER = pathlib.Path('/proc/driver/nvidia/version')
CPUINFO = pathlib.Path('/proc/cpuinfo')
MAPPED = pathlib.Path('/proc/self/maps')  # what this process has loaded
LIBM = re.compile(r'/(libm[-.][^/]*so|ld-musl-)')  # musl has all in one
ACCELERATOR_PACKAGES = re.compile(r'jax-(cuda|rocm)|nvidia-|libtpu')


def processor() -> str:
    """Model and vector instructions of the first processor; its name outside Linux."""
    if not CPUINFO.exists():
        return f'{platform.machine()} {platform.processor()}'
    told = []
    for line in CPUINFO.read_text().partition('\n\n')[0].splitlines():
        name, _, value = (part.strip() for part in line.partition(':'))
        if name in INSTRUCTIONS:
            words = sorted(filter(INSTRUCTIONS[name].fullmatch, value.split()))
            told.append(' '.join(words))
        elif MODEL.fullmatch(name):
            told.append(f'{name} {value}')
    return ', '.join(told)


def cores() -> int:
    """Processors that this process may run on: XLA starts a thread for each.

    A cpuset changes their number; a quota of time or memory does not.
    """
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def linear_algebra() -> str:
    """Libraries of BLAS and LAPACK in this process: kernels, threads now, a hash of the file.

    With other threads an eigenvector may have another sign, and a program may set their
    number at any time, without a variable.
    """
    told = sorted(
        f'{found["internal_api"]} {found["version"]} {found.get("architecture")} '
        f'{found["num_threads"]} {_digest(found["filepath"])}'
        for found in threadpoolctl.threadpool_info()
        if found['user_api'] == 'blas'
    )
    return ', '.join(told)


@functools.cache
def _digest(file: str) -> str:
    whole = hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()
    return whole[:16]  # in messages, too


@functools.cache
def long_sum() -> str:
    """A sum that XLA splits among the threads it has, to its last bit.

    They are those of the cores that the process had when JAX began, which `cores` no longer
    tells where a program has changed its affinity since.
    """
    numbers = np.random.default_rng(0).standard_normal(2**20, np.float32)
    return float(jax.jit(jnp.sum)(numbers)).hex()


def driver(device: jax.Device) -> str:
    """Versions below JAX: of the runtime, the driver, and libraries of accelerators."""
    told = [device.client.platform_version, math_library()]
    if CUDA_DRIVER.exists():
        told += CUDA_DRIVER.read_text().splitlines()[:1]
    return ', '.join([*told, *cuda_libraries(), *accelerator_packages()])


@functools.cache
def accelerator_packages() -> tuple[str, ...]:
    """Names and versions of those that are installed, sorted; looked for once."""
    found = (
        f'{package.name} {package.version}'
        for package in importlib.metadata.distributions()
        if ACCELERATOR_PACKAGES.match(package.name or '')
    )
    return tuple(sorted(found))


def cuda_libraries() -> list[str]:
    """Versions of the CUDA libraries that are there; none without JAX's CUDA plugin."""
    told = []
    for name in CUDA_LIBRARIES if cuda_versions else ():
        version = getattr(cuda_versions, f'{name}_get_version')
        with contextlib.suppress(RuntimeError):  # this library is not installed
            told.append(f'{name} {version()}')
    return told


@functools.cache
def math_library() -> str:
    """The system's sines and cosines, which XLA on a CPU calls: SHA-256 of their file.

    Two of them differ in the last bit. Where the system does not tell which file is used,
    its own version stands for it.
    """
    lines = MAPPED.read_text().splitlines() if MAPPED.exists() else []
    found = sorted({file for line in lines if LIBM.search(file := line.split()[-1])})
    if not found:
        return f'{platform.system()} {platform.release()}'
    digests = [
        hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest() for file in found
    ]
    return f'libm {" ".join(digests)}'


def settings() -> dict[str, Any]:
    """Variables and settings of JAX that shape programs or what they compute, by name."""
    known = {
        name: str(value)
        for name, value in jax.config.values.items()
        if not HARMLESS_SETTINGS.match(name)
    }
    return variables() | known


def variables() -> dict[str, str]:
    """The variables among `settings`."""
    found = {
        name: value
        for name, value in os.environ.items()
        if VARIABLES.match(name) and not HARMLESS_VARIABLES.match(name)
    }
    flags = found.get('XLA_FLAGS', '').replace(gpu_compiler.FLAG, '').strip()
    if flags:
        found['XLA_FLAGS'] = flags
    else:  # the package's own is no setting of its user's
        found.pop('XLA_FLAGS', None)
    if flags and not flags.startswith('-'):  # XLA then takes it for a file of flags
        with contextlib.suppress(OSError):
            found['XLA_FLAGS'] = pathlib.Path(flags).read_text()
    return found


def kind() -> str:
    """A short name of what `processor`, `cores` and `variables` tell: for a folder."""
    told = json.dumps([processor(), cores(), variables()], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:12]
