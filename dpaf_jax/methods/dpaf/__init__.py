"""DPAF: `plan` says what it costs, `train` is Algorithm 1."""

from dpaf_jax.methods.dpaf.plan import plan
from dpaf_jax.methods.dpaf.train import train

__all__ = ['plan', 'train']
