"""DPBA-WGAN: a Wasserstein critic by DP-SGD, under noise that varies."""

from dpaf_jax.methods.dpba_wgan.critic import train
from dpaf_jax.methods.dpba_wgan.plan import plan

__all__ = ['plan', 'train']
