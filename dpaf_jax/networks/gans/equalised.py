"""Layers with an equalised learning rate, and pixelwise normalisation.

Source: Karras et al. 2018, sections 4.1 and 4.2. Weights start as N(0, 1) and are scaled by
He's constant where they are used, so that Adam's steps are of one relative size everywhere.
"""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.networks.layers import multiply

_normal = nn.initializers.normal(1.0)
RECTIFIED = math.sqrt(2.0)  # He's gain in front of a rectifier; 1 in front of none


def pixel_norm(maps: jax.Array) -> jax.Array:
    """Scales each pixel's vector of features to root mean square 1."""
    square = jnp.mean(jnp.square(maps), axis=-1, keepdims=True)
    return maps * jax.lax.rsqrt(square + 1e-8)


class EqualConv(nn.Module):
    """A convolution at stride 1.

    Attributes:
        width: maps it makes.
        convolve: of layers.py.
        size: side of the kernel.
        gain: He's.
    """

    width: int
    convolve: Callable[..., jax.Array]
    size: int = 3
    gain: float = RECTIFIED

    @nn.compact
    def __call__(self, maps: jax.Array) -> jax.Array:
        """[B, s, s, c] to [B, s, s, width]."""
        shape = (self.size, self.size, maps.shape[-1], self.width)
        kernel = self.param('kernel', _normal, shape)
        kernel = kernel * (self.gain / math.sqrt(math.prod(shape[:-1])))
        bias = self.param('bias', nn.initializers.zeros, (self.width,))
        return self.convolve(maps, kernel, (1, 1), 'SAME') + bias


class EqualDense(nn.Module):
    """A fully connected layer; attributes as of `EqualConv`."""

    width: int
    gain: float = RECTIFIED

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """[B, i] to [B, width]."""
        kernel = self.param('kernel', _normal, (inputs.shape[-1], self.width))
        kernel = kernel * (self.gain / math.sqrt(inputs.shape[-1]))
        bias = self.param('bias', nn.initializers.zeros, (self.width,))
        return multiply(inputs, kernel) + bias
