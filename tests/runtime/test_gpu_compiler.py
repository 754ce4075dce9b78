"""XLA's flag for a GPU: added where there is one, and never over the user's own."""

import sys

import pytest

from dpaf_jax.runtime import gpu_compiler
from dpaf_jax.runtime.gpu_compiler import FLAG, compile_quickly


@pytest.fixture
def cuda(tmp_path, monkeypatch):
    """JAX's plugin for CUDA, as far as its name goes."""
    (tmp_path / 'jax_plugins' / 'xla_cuda13').mkdir(parents=True)
    (tmp_path / 'jax_plugins' / 'xla_cuda13' / '__init__.py').touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'jax_plugins', raising=False)
    monkeypatch.setenv('XLA_FLAGS', '')
    monkeypatch.setattr(gpu_compiler.importlib.metadata, 'version', lambda _: '0.11.2')
    return monkeypatch


def flags() -> list[str]:
    compile_quickly()
    return gpu_compiler.os.environ['XLA_FLAGS'].split()


def test_it_is_added_where_jax_has_cuda(cuda):
    assert flags() == [FLAG]
    assert flags() == [FLAG]  # once


def test_what_the_user_says_stays(cuda):
    cuda.setenv('XLA_FLAGS', '--xla_gpu_enable_triton_gemm=true')
    assert flags() == ['--xla_gpu_enable_triton_gemm=true']
    cuda.setenv('XLA_FLAGS', '--xla_other')
    assert flags() == ['--xla_other', FLAG]


def test_none_without_a_plugin(cuda, tmp_path):
    (tmp_path / 'jax_plugins' / 'xla_cuda13').rename(tmp_path / 'jax_plugins' / 'other')
    assert flags() == []


def test_none_for_a_version_that_may_not_know_them(cuda):
    cuda.setattr(gpu_compiler.importlib.metadata, 'version', lambda _: '0.12.0')
    assert flags() == []
