"""P3GM: a VAE in two phases, each private by itself (Takagi et al. 2021)."""

from dpaf_jax.methods.p3gm.plan import plan
from dpaf_jax.methods.p3gm.train import train

__all__ = ['plan', 'train']
