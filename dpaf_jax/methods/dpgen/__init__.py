"""DPGEN: a score network by DP-SGD on the denoising loss."""

from dpaf_jax.methods.dpgen.phase import mechanism, plan, train

__all__ = ['mechanism', 'plan', 'train']
