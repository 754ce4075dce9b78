"""BigGAN (Brock, Donahue, Simonyan 2019), as far as a clip for each example allows.

As there (section 3, appendix B): residual blocks in both networks, class and a share of the
latent draw modulate every block of the generator, the discriminator is a projection
discriminator (Miyato and Koyama 2018), every weight of both has spectral norm 1 and starts
orthogonal.

For a clip's sake. BigGAN's batch normalisation stands in the generator alone, where it makes
an image depend on others of its batch. Instance normalisation takes its place: a released
sampler gives the same image whatever is drawn beside it. In the discriminator nothing acts
across examples: what it says of an image is a function of image, label and parameters.

Left out: self-attention, orthogonal regularisation (it serves truncation), and widths of a
hundred maps, since noise grows with the root of the number of parameters.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.networks.gans.sides import double, halve
from dpaf_jax.networks.gans.spectral import SpectralConv, SpectralDense
from dpaf_jax.networks.instance_norm import simplified_instance_norm
from dpaf_jax.networks.layers import convolve, convolve_by_shape

EMBEDDING = 128  # of a label, shared by all blocks of the generator
_label_init = nn.initializers.normal(1.0)  # classes differ from the first step on


class BigGanGenerator(nn.Module):
    """A residual block for each doubling of the side (figure 15).

    Attributes:
        sides: from the image inwards, as in `Architecture`.
        widths: maps at each side, from the image inwards.
        channels: of the image.
        num_classes: K.
    """

    sides: tuple[int, ...]
    widths: tuple[int, ...]
    channels: int
    num_classes: int

    @nn.compact
    def __call__(self, z: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, z_dim] normal draws and [B] labels to [B, H, W, C] images in (-1, 1)."""
        first, *rest = jnp.array_split(z, len(self.sides), axis=1)
        label = nn.Embed(self.num_classes, EMBEDDING, embedding_init=_label_init)(
            labels
        )
        side, width = self.sides[-1], self.widths[-1]
        maps = SpectralDense(side * side * width)(first)
        maps = maps.reshape(len(z), side, side, width)
        outwards = zip(self.sides[-2::-1], self.widths[-2::-1], rest, strict=True)
        for side, width, share in outwards:
            maps = _Up(side, width)(maps, jnp.concatenate([label, share], axis=1))
        maps = nn.relu(simplified_instance_norm(maps))
        return jnp.tanh(SpectralConv(self.channels, convolve_by_shape)(maps))


class _Modulated(nn.Module):
    """Instance normalisation, then a gain and a shift of each map by the condition."""

    @nn.compact
    def __call__(self, maps: jax.Array, condition: jax.Array) -> jax.Array:
        gain, shift = (
            SpectralDense(maps.shape[-1], use_bias=False, name=name)(condition)
            for name in ('gain', 'shift')
        )
        normed = simplified_instance_norm(maps)
        return normed * (1 + gain[:, None, None]) + shift[:, None, None]


class _Up(nn.Module):
    """A residual block that doubles the side (figure 15b)."""

    side: int
    width: int

    @nn.compact
    def __call__(self, maps: jax.Array, condition: jax.Array) -> jax.Array:
        inner = double(nn.relu(_Modulated()(maps, condition)), self.side)
        inner = SpectralConv(self.width, convolve_by_shape)(inner)
        inner = nn.relu(_Modulated()(inner, condition))
        inner = SpectralConv(self.width, convolve_by_shape)(inner)
        beside = SpectralConv(self.width, convolve_by_shape, size=1)(maps)
        return inner + double(beside, self.side)


class BigGanDiscriminator(nn.Module):
    """A residual block for each halving of the side, one more, and the projection.

    Attributes:
        widths: maps behind each halving.
        num_classes: K.
    """

    widths: tuple[int, ...]
    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, H, W, C] images and [B] labels to [B] answers: above 0 for real."""
        maps = images
        for i, width in enumerate(self.widths):
            maps = halve(_Block(width, is_first=i == 0)(maps))
        maps = nn.relu(_Block(self.widths[-1])(maps))
        features = jnp.sum(maps, axis=(1, 2))
        one_hot: Any = jax.nn.one_hot(labels, self.num_classes)
        of_class = SpectralDense(self.widths[-1], use_bias=False)(one_hot)
        alone = SpectralDense(1)(features)[:, 0]
        return alone + jnp.sum(of_class * features, axis=1)


class _Block(nn.Module):
    """A residual block (figure 15c); halving comes behind it, where there is one.

    Attributes:
        width: maps it makes; of another number than there are, the way beside is learnt.
        is_first: reads images, which have no activation yet.
    """

    width: int
    is_first: bool = False

    @nn.compact
    def __call__(self, maps: jax.Array) -> jax.Array:
        inner = maps if self.is_first else nn.relu(maps)
        inner = SpectralConv(self.width, convolve)(inner)
        inner = SpectralConv(self.width, convolve)(nn.relu(inner))
        if maps.shape[-1] != self.width:
            maps = SpectralConv(self.width, convolve, size=1)(maps)
        return inner + maps
