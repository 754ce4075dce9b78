"""Layers whose weights have spectral norm 1 (Miyato et al. 2018), started orthogonal.

The norm is a function of the weights alone. Miyato et al. carry the power iteration's vector
from step to step; here each pass starts it afresh from a public vector, so nothing persists
beside the weights, and no image has a say in it.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.networks.layers import multiply

ITERATIONS = 20  # within 2 % of the norm, where weights are random
TINY = 1e-12


def spectral_norm(kernel: jax.Array) -> jax.Array:
    """The largest singular value of a kernel as a matrix; its vectors count as constants.

    Args:
        kernel: [..., m] float32, a matrix of m columns.

    Returns:
        float32 scalar: u^T W v (Miyato et al. 2018, algorithm 1), never above the norm.
    """
    matrix = kernel.reshape(-1, kernel.shape[-1])
    fixed = jax.lax.stop_gradient(matrix)
    gram = fixed.T @ fixed

    def iterate(_: int, v: jax.Array) -> jax.Array:
        return _unit(gram @ v)

    start = np.random.default_rng(0).normal(size=kernel.shape[-1])  # public
    v = jax.lax.fori_loop(0, ITERATIONS, iterate, _unit(jnp.float32(start)))
    return _unit(fixed @ v) @ (matrix @ v)


def _unit(vector: jax.Array) -> jax.Array:
    return vector / jnp.maximum(jnp.linalg.norm(vector), TINY)


class _Kernel(nn.Module):
    """A kernel of spectral norm 1."""

    shape: tuple[int, ...]

    @nn.compact
    def __call__(self) -> jax.Array:
        kernel = self.param('kernel', nn.initializers.orthogonal(), self.shape)
        return kernel / jnp.maximum(spectral_norm(kernel), TINY)


class SpectralConv(nn.Module):
    """A convolution at stride 1.

    Attributes:
        width: maps it makes.
        convolve: of layers.py.
        size: side of the kernel.
    """

    width: int
    convolve: Callable[..., jax.Array]
    size: int = 3

    @nn.compact
    def __call__(self, maps: jax.Array) -> jax.Array:
        """[B, s, s, c] to [B, s, s, width]."""
        shape = (self.size, self.size, maps.shape[-1], self.width)
        bias = self.param('bias', nn.initializers.zeros, (self.width,))
        return self.convolve(maps, _Kernel(shape)(), (1, 1), 'SAME') + bias


class SpectralDense(nn.Module):
    """A fully connected layer."""

    width: int
    use_bias: bool = True

    @nn.compact
    def __call__(self, inputs: Any) -> jax.Array:
        """[B, i] to [B, width]."""
        made = multiply(inputs, _Kernel((inputs.shape[-1], self.width))())
        if self.use_bias:
            made = made + self.param('bias', nn.initializers.zeros, (self.width,))
        return made
