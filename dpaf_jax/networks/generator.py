"""Generators as Flax Linen modules.

All turn [B, z_dim] normal draws and [B] labels into images. `Generator` is the reverse of
the discriminator, as DPAF has it; `StyledGenerator` has the same layers and sets the style
of each by draw and label; `FineGenerator` adds a layer at the image's own side.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.networks.architecture import SLOPE, make_architecture
from dpaf_jax.networks.instance_norm import simplified_instance_norm
from dpaf_jax.networks.layers import convolve_by_shape

# Strong enough that classes differ from the first step on.
_label_init = nn.initializers.normal(1.0)
_style_init = nn.initializers.normal(0.02)
STYLE, STYLE_LABEL = 256, 64  # units of a style, and of the label's part in making it
FINE = 16  # maps of a fine generator at the image's own side


class Generator(nn.Module):
    """The reverse of the discriminator: fully connected, then a doubling per layer.

    A doubling is a 3 x 3 convolution to four times the maps and a depth-to-space, cropped
    to the side that the discriminator had there (28 <- 14 <- 7 <- 4). That computes what
    a strided transposed convolution can, with a backward pass that compilers do well.

    Attributes:
        sides: from the image inwards, as in `Architecture`.
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
    """Twice the side, cropped to `side`: convolution, then depth to space."""

    width: int
    side: int
    kernel: int = 3

    @nn.compact
    def __call__(self, maps: jax.Array) -> jax.Array:
        square = (self.kernel, self.kernel)
        maps = nn.Conv(4 * self.width, square, conv_general_dilated=convolve_by_shape)(
            maps
        )
        batch, h, w, _ = maps.shape
        maps = maps.reshape(batch, h, w, 2, 2, self.width)
        maps = maps.transpose(0, 1, 3, 2, 4, 5).reshape(batch, 2 * h, 2 * w, self.width)
        return maps[:, : self.side, : self.side]


class StyledGenerator(Generator):
    """A generator in which draw and label have a say at every layer.

    A mapping network makes a style of both. Behind each layer SIN normalises the maps, and
    scale and shift for each map follow from the style: adaptive instance normalisation
    (Huang and Belongie 2017), as in StyleGAN (Karras et al. 2019). Where a generator is
    matched to a released table, that comes several times nearer to it in as many steps
    (docs/research/2026-11-22-styled-generator.md).
    """

    @nn.compact
    def __call__(self, z: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, z_dim] normal draws and [B] labels to [B, H, W, C] images in (-1, 1)."""
        side, first = self.sides[-1], self.sides[-1] ** 2 * self.widths[-1]
        label = nn.Embed(self.num_classes, STYLE_LABEL, embedding_init=_label_init)(
            labels
        )
        style = jnp.concatenate([z, label], axis=-1)
        for _ in range(2):
            style = nn.leaky_relu(nn.Dense(STYLE)(style), SLOPE)
        maps = nn.leaky_relu(nn.Dense(first)(style), SLOPE)
        maps = maps.reshape(len(z), side, side, self.widths[-1])
        maps = _Styled()(maps, style)
        inner = list(zip(self.sides[1:], self.widths, strict=True))[:-1]
        for side, width in reversed(inner):
            maps = nn.leaky_relu(_Styled()(_Double(width, side)(maps), style), SLOPE)
        return jnp.tanh(self._image(maps, style))

    def _image(self, maps: jax.Array, style: jax.Array) -> jax.Array:
        """From maps of half the image's side."""
        del style
        return _Double(self.channels, self.sides[0])(maps)


class FineGenerator(StyledGenerator):
    """A styled generator whose last convolution sees the image's own pixels.

    Without it each square of 2 x 2 pixels comes of one place of the maps before, and grain is
    easier to draw than even ground (docs/research/2026-11-26-texture-within.md).
    """

    def _image(self, maps: jax.Array, style: jax.Array) -> jax.Array:
        maps = _Styled()(_Double(FINE, self.sides[0], kernel=1)(maps), style)
        last = nn.Conv(self.channels, (3, 3), conv_general_dilated=convolve_by_shape)
        return last(nn.leaky_relu(maps, SLOPE))


class _Styled(nn.Module):
    """SIN, then a scale and a shift of each map by the style."""

    @nn.compact
    def __call__(self, maps: jax.Array, style: jax.Array) -> jax.Array:
        both = nn.Dense(2 * maps.shape[-1], kernel_init=_style_init)(style)
        scale, shift = jnp.split(both[:, None, None], 2, axis=-1)
        return simplified_instance_norm(maps) * (1 + scale) + shift


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


GENERATORS: dict[str, type[Generator]] = {
    'reverse': Generator,
    'styled': StyledGenerator,
    'fine': FineGenerator,
}


def make_generator(config: Config) -> Generator | TableGenerator:
    """The generator alone: all that a release needs."""
    if config.data.columns:
        width, k = config.networks.fc_width, config.data.num_classes
        return TableGenerator(width, len(config.data.table), k)
    layout, data = make_architecture(config), config.data
    return GENERATORS[config.networks.generator](
        layout.sides, generator_widths(config), data.channels, data.num_classes
    )


def generator_widths(config: Config) -> tuple[int, ...]:
    """Maps at each inner side of a generator, from the image inwards."""
    net, doublings = config.networks, sum(make_architecture(config).parts)
    return tuple(
        min(net.generator_width * 2**i, net.max_width) for i in range(doublings)
    )
