"""Freed memory is used again instead of being asked of the kernel anew."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
from dpaf_jax.runtime.memory import keep_freed_memory

if {keep}:
    assert keep_freed_memory()


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


bytearray(2**26)
before = faults()
for _ in range(4):
    bytearray(2**26)
print(faults() - before)
"""


def page_faults(keep: bool) -> int:
    """Of taking 64 MiB four times, after a first."""
    command = [sys.executable, '-c', PROGRAM.format(keep=keep)]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith('linux'), reason='glibc')
def test_freed_memory_is_not_asked_for_again() -> None:
    assert page_faults(keep=False) > 1000  # or the test says nothing
    assert page_faults(keep=True) < 100
