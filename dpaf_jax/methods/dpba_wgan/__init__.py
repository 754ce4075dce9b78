"""DPBA-WGAN: a Wasserstein critic by DP-SGD, under noise that varies."""

from dpaf_jax.methods.dpba_wgan.plan import plan
from dpaf_jax.methods.dpba_wgan.train import train

__all__ = ['plan', 'train']
