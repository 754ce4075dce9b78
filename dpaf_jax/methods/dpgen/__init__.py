"""DPGEN: a score network by DP-SGD on the denoising loss."""

from dpaf_jax.methods.dpgen.phase import plan, train

__all__ = ['plan', 'train']
