"""Classifier, discriminator and generator as Flax Linen modules.

The layer notation 'C2-C1-x' gives the number of convolutions of conv1, conv2* and
conv3* (DPAF, preprint section 6.1). Each halves the side. DPAGG sits behind conv2*; the
head (conv3*, then always two fully connected layers) reads its output. The generator
is the reverse of the discriminator.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.convolution import convolve, convolve_by_shape
from dpaf_jax.errors import UserError

SLOPE = 0.2  # of the leaky ReLU; the papers only say that it is leaky


@dataclasses.dataclass(frozen=True)
class Layout:
    """Sizes and widths that follow from the layer notation and the image.

    Attributes:
        parts: number of convolutions in conv1, conv2*, conv3*.
        sides: image side before each layer, and after the last: len = sum(parts) + 1.
        widths: feature maps behind each layer: len = sum(parts).
    """

    parts: tuple[int, int, int]
    sides: tuple[int, ...]
    widths: tuple[int, ...]

    def side(self, part: int) -> int:
        """Side of the maps behind the `part`-th part (1-based)."""
        return self.sides[sum(self.parts[:part])]

    def maps(self, part: int) -> int:
        """Number of maps behind the `part`-th part (1-based)."""
        return self.widths[sum(self.parts[:part]) - 1]


def make_layout(config: Config) -> Layout:
    """Checks the notation against the image size.

    Raises:
        UserError: malformed notation, no conv1 or conv2*, or a 1 x 1 map at DPAGG.
    """
    where, notation = 'config.networks.layers', config.networks.layers
    match = re.fullmatch(r'C(\d+)-C(\d+)-(?:C(\d+)|[x×])', notation)
    if not match:
        raise UserError(
            where, f'is {notation!r}', "Write it like 'C2-C1-x' or 'C2-C2-C1'"
        )
    parts = (int(match[1]), int(match[2]), int(match[3] or 0))
    if parts[0] < 1 or parts[1] < 1:
        raise UserError(where, f'is {notation!r}', 'conv1 and conv2 need a layer each')
    sides = [config.data.image_size]
    for _ in range(sum(parts)):
        sides.append(-(-sides[-1] // 2))
    if sides[parts[0] + parts[1]] < 2 or (parts[2] and sides[-2] < 2):
        raise UserError(
            where,
            f'is {notation!r}, which shrinks {config.data.image_size} x '
            f'{config.data.image_size} images to one pixel: '
            f'{" -> ".join(map(str, sides))}',
            'Use fewer layers or larger images; a map of one pixel carries nothing',
        )
    net = config.networks
    widths = [min(net.width * 2**i, net.max_width) for i in range(sum(parts))]
    return Layout(parts, tuple(sides), tuple(widths))


def label_planes(labels: jax.Array, num_classes: int) -> jax.Array:
    """[B] int32 labels as [B, K] one-hot float32, spread over the map where used."""
    return jax.nn.one_hot(labels, num_classes, dtype=jnp.float32)


def _join_planes(maps: jax.Array, planes: jax.Array) -> jax.Array:
    spread = jnp.broadcast_to(
        planes[:, None, None, :], (*maps.shape[:3], planes.shape[-1])
    )
    return jnp.concatenate([maps, spread], axis=-1)


class ConvPart(nn.Module):
    """Strided convolutions with leaky ReLU: conv1, conv2* or conv3*.

    Attributes:
        widths: feature maps of each layer.
        kernel_size: side of the kernels.
        label_injection: where label planes join: 'input', 'first_layer' or 'none'.
        convolve: of convolution.py.
    """

    widths: tuple[int, ...]
    kernel_size: int
    label_injection: str = 'none'
    convolve: Callable[..., jax.Array] = convolve

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
            maps = nn.leaky_relu(maps, SLOPE)
            if i == 0 and self.label_injection == 'first_layer':
                maps = _join_planes(maps, planes)
        return maps


class Head(nn.Module):
    """conv3* and two fully connected layers, behind the aggregation.

    Attributes:
        widths: feature maps of conv3*'s layers; may be empty.
        outputs: 1 for the discriminator, the number of classes for the classifier.
    """

    widths: tuple[int, ...]
    kernel_size: int
    fc_width: int
    outputs: int

    @nn.compact
    def __call__(self, maps: jax.Array) -> jax.Array:
        """[A, p, p, m] aggregates to [A, outputs] logits."""
        maps = ConvPart(self.widths, self.kernel_size)(maps)
        flat = maps.reshape(len(maps), -1)
        hidden = nn.leaky_relu(nn.Dense(self.fc_width)(flat), SLOPE)
        return nn.Dense(self.outputs)(hidden)


class Discriminator(nn.Module):
    """Convolutions and two fully connected layers with one answer for each class.

    The label picks the answer: a discriminator for each class, with shared features. That
    tells classes apart sooner than label planes do where the gradient is noisy.

    Attributes:
        widths: feature maps of each layer.
        kernel_size: side of the kernels.
        fc_width: units between the two fully connected layers.
        num_classes: K.
        convolve: of convolution.py.
    """

    widths: tuple[int, ...]
    kernel_size: int
    fc_width: int
    num_classes: int
    convolve: Callable[..., jax.Array] = convolve

    @nn.compact
    def __call__(self, images: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, H, W, C] images and [B] labels to [B] logits: above 0 for real."""
        part = ConvPart(self.widths, self.kernel_size, convolve=self.convolve)
        maps = part(images)
        answers = Head((), self.kernel_size, self.fc_width, self.num_classes)(maps)
        return jnp.sum(answers * label_planes(labels, self.num_classes), axis=1)


# Strong enough that classes differ from the first step on.
_label_init = nn.initializers.normal(1.0)


class Generator(nn.Module):
    """The reverse of the discriminator: fully connected, then a doubling per layer.

    A doubling is a 3 x 3 convolution to four times the maps and a depth-to-space, cropped
    to the side that the discriminator had there (28 <- 14 <- 7 <- 4). That computes what
    a strided transposed convolution can, with a backward pass that compilers do well.

    Attributes:
        sides: from the image inwards, as in `Layout`.
        widths: maps at each inner side, from the image inwards.
        channels: of the image.
        num_classes: an embedding of the label joins the first layer's output (cDCGAN).
    """

    sides: tuple[int, ...]
    widths: tuple[int, ...]
    channels: int
    num_classes: int

    @nn.compact
    def __call__(self, z: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, z_dim] normal draws and [B] labels to [B, H, W, C] images in (-1, 1)."""
        side = self.sides[-1]
        first = side * side * self.widths[-1]
        embedding = nn.Embed(self.num_classes, first, embedding_init=_label_init)(
            labels
        )
        maps = nn.leaky_relu(nn.Dense(first)(z) + embedding, SLOPE)
        maps = maps.reshape(len(z), side, side, self.widths[-1])
        inner = list(zip(self.sides[1:], self.widths, strict=True))[:-1]
        for side, width in reversed(inner):
            maps = nn.leaky_relu(_Double(width, side)(maps), SLOPE)
        return jnp.tanh(_Double(self.channels, self.sides[0])(maps))


class _Double(nn.Module):
    """Twice the side, cropped to `side`: 3 x 3 convolution, then depth to space."""

    width: int
    side: int

    @nn.compact
    def __call__(self, maps: jax.Array) -> jax.Array:
        maps = nn.Conv(4 * self.width, (3, 3), conv_general_dilated=convolve_by_shape)(
            maps
        )
        batch, h, w, _ = maps.shape
        maps = maps.reshape(batch, h, w, 2, 2, self.width)
        maps = maps.transpose(0, 1, 3, 2, 4, 5).reshape(batch, 2 * h, 2 * w, self.width)
        return maps[:, : self.side, : self.side]


@dataclasses.dataclass(frozen=True)
class Networks:
    """All modules of one run; they share nothing but the config."""

    layout: Layout
    conv1: ConvPart
    conv2: ConvPart
    classifier_head: Head
    head: Head
    generator: Generator
    num_classes: int
    z_dim: int


def make_networks(config: Config) -> Networks:
    """Builds the modules for a config; raises UserError where it does not fit."""
    layout = make_layout(config)
    net, data = config.networks, config.data
    split = (layout.parts[0], layout.parts[0] + layout.parts[1])
    width3 = layout.widths[split[1] :]
    return Networks(
        layout=layout,
        conv1=ConvPart(layout.widths[: split[0]], net.kernel_size, net.label_injection),
        conv2=ConvPart(layout.widths[split[0] : split[1]], net.kernel_size),
        classifier_head=Head(width3, net.kernel_size, net.fc_width, data.num_classes),
        head=Head(width3, net.kernel_size, net.fc_width, 1),
        generator=make_generator(config),
        num_classes=data.num_classes,
        z_dim=net.z_dim,
    )


class TableGenerator(nn.Module):
    """Fully connected layers, for rows of numbers.

    Attributes:
        width: units of each of two hidden layers.
        columns: F.
        num_classes: an embedding of the label joins the first layer's output.
    """

    width: int
    columns: int
    num_classes: int

    @nn.compact
    def __call__(self, z: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, z_dim] normal draws and [B] labels to [B, 1, F, 1] in (-1, 1)."""
        embedding = nn.Embed(self.num_classes, self.width, embedding_init=_label_init)(
            labels
        )
        hidden = nn.leaky_relu(nn.Dense(self.width)(z) + embedding, SLOPE)
        hidden = nn.leaky_relu(nn.Dense(self.width)(hidden), SLOPE)
        return nn.tanh(nn.Dense(self.columns)(hidden))[:, None, :, None]


def make_generator(config: Config) -> Generator | TableGenerator:
    """The generator alone: all that a release needs."""
    if config.data.columns:
        width, k = config.networks.fc_width, config.data.num_classes
        return TableGenerator(width, len(config.data.table), k)
    layout, net = make_layout(config), config.networks
    widths = tuple(
        min(net.generator_width * 2**i, net.max_width) for i in range(sum(layout.parts))
    )
    return Generator(
        layout.sides, widths, config.data.channels, config.data.num_classes
    )


def to_float(images: jax.Array) -> jax.Array:
    """uint8 [..., H, W, C], or a table's float32 in [0, 1], to float32 in [-1, 1]."""
    if images.dtype != jnp.uint8:
        return images * 2 - 1
    return images.astype(jnp.float32) / 127.5 - 1


def to_uint8(images: jax.Array) -> jax.Array:
    """float32 in [-1, 1] to uint8."""
    return jnp.round((jnp.clip(images, -1, 1) + 1) * 127.5).astype(jnp.uint8)
