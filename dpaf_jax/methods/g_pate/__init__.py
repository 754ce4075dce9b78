"""G-PATE: a student generator taught by the votes of teachers."""

from dpaf_jax.methods.g_pate.phase import train
from dpaf_jax.methods.g_pate.plan import plan

__all__ = ['plan', 'train']
