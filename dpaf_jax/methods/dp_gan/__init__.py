"""DP-GAN: a conditional GAN whose discriminator learns by DP-SGD; DP-CGAN stands beside it."""

from dpaf_jax.methods.dp_gan.gan import plan, train

__all__ = ['plan', 'train']
