"""Classifier and discriminator as Flax Linen modules.

DPAGG sits behind conv2*; the head (conv3*, then always two fully connected layers) reads
its output.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.networks.architecture import SLOPE
from dpaf_jax.networks.layers import convolve, multiply

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    'leaky_relu': functools.partial(nn.leaky_relu, negative_slope=SLOPE),
    'tanh': nn.tanh,
}


def _join_planes(maps: jax.Array, planes: jax.Array) -> jax.Array:
    spread = jnp.broadcast_to(
        planes[:, None, None, :], (*maps.shape[:3], planes.shape[-1])
    )
    return jnp.concatenate([maps, spread], axis=-1)


class ConvPart(nn.Module):
    """Strided convolutions: conv1, conv2* or conv3*.

    Attributes:
        widths: feature maps of each layer.
        kernel_size: side of the kernels.
        label_injection: where label planes join: 'input', 'first_layer' or 'none'.
        convolve: of layers.py.
        activation: of `ACTIVATIONS`.
    """

    widths: tuple[int, ...]
    kernel_size: int
    label_injection: str = 'none'
    convolve: Callable[..., jax.Array] = convolve
    activation: str = 'leaky_relu'

    @nn.compact
    def __call__(self, maps: jax.Array, planes: Any = None) -> jax.Array:
        """[B, s, s, c] and [B, K] planes to [B, s', s', m]."""
        if self.label_injection == 'input':
            maps = _join_planes(maps, planes)
        for i, width in enumerate(self.widths):
            kernel = (self.kernel_size, self.kernel_size)
            maps = nn.Conv(
                width, kernel, strides=2, conv_general_dilated=self.convolve
            )(maps)
            maps = ACTIVATIONS[self.activation](maps)
            if i == 0 and self.label_injection == 'first_layer':
                maps = _join_planes(maps, planes)
        return maps


class Head(nn.Module):
    """conv3* and two fully connected layers, behind the aggregation.

    Attributes:
        widths: feature maps of conv3*'s layers; may be empty.
        outputs: answers of the discriminator; of the classifier as many as classes.
        begins_at_zero: whether all answers are 0 until something has been learnt. A generator
            would follow a random answer, far from where any image is.
        convolve: of layers.py; `convolve_by_products` has a second derivative.
        activation: of `ACTIVATIONS`.
    """

    widths: tuple[int, ...]
    kernel_size: int
    fc_width: int
    outputs: int
    begins_at_zero: bool = False
    convolve: Callable[..., jax.Array] = convolve
    activation: str = 'leaky_relu'

    @nn.compact
    def __call__(self, maps: jax.Array, beside: Any = None) -> jax.Array:
        """[A, p, p, m] aggregates, and [A, n] more features, to [A, outputs] logits."""
        init = nn.initializers.zeros if self.begins_at_zero else nn.Dense.kernel_init
        activation = self.activation
        part = ConvPart(
            self.widths, self.kernel_size, convolve=self.convolve, activation=activation
        )
        maps = part(maps)
        flat = maps.reshape(len(maps), -1)
        if beside is not None:
            flat = jnp.concatenate([flat, beside], axis=1)
        hidden = nn.Dense(self.fc_width, dot_general=multiply)(flat)
        hidden = ACTIVATIONS[activation](hidden)
        last = nn.Dense(self.outputs, dot_general=multiply, kernel_init=init)
        return last(hidden)


class Discriminator(nn.Module):
    """Convolutions and two fully connected layers with one answer for each class.

    The label picks the answer: a discriminator for each class, with shared features. That
    tells classes apart sooner than label planes do where the gradient is noisy.

    Attributes:
        widths: feature maps of each layer.
        kernel_size: side of the kernels.
        fc_width: units between the two fully connected layers.
        num_classes: K.
        convolve: of layers.py.
        begins_at_zero: as of `Head`.
    """

    widths: tuple[int, ...]
    kernel_size: int
    fc_width: int
    num_classes: int
    convolve: Callable[..., jax.Array] = convolve
    begins_at_zero: bool = False

    @nn.compact
    def __call__(self, images: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, H, W, C] images and [B] labels to [B] logits: above 0 for real."""
        part = ConvPart(self.widths, self.kernel_size, convolve=self.convolve)
        maps = part(images)
        answers = Head(
            (),
            self.kernel_size,
            self.fc_width,
            self.num_classes,
            begins_at_zero=self.begins_at_zero,
        )(maps)
        return jnp.sum(answers * jax.nn.one_hot(labels, self.num_classes), axis=1)
