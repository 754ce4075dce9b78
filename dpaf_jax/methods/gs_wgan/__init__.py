"""GS-WGAN: critics on disjoint parts of the data, sanitised gradients."""

from dpaf_jax.methods.gs_wgan.phase import train
from dpaf_jax.methods.gs_wgan.plan import plan

__all__ = ['plan', 'train']
