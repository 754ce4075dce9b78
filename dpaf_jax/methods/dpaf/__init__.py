"""DPAF: `plan` says what it costs, `train` is Algorithm 1."""

from dpaf_jax.methods.dpaf.plan import plan, train

__all__ = ['plan', 'train']
