"""G-PATE: a student generator taught by the votes of teachers."""

from dpaf_jax.methods.g_pate.student import plan, train

__all__ = ['plan', 'train']
