"""PGGAN: progressive growing of GANs (Karras et al. 2018), one image at a time.

As there (section 2, table 2): both networks grow from the innermost side outwards
(growth.py), learning rates are equalised, the generator normalises every pixel's features,
rectifiers are leaky.

Left out is the minibatch standard deviation (section 3): it is a statistic across examples,
and would stand in front of the clip. Every other part acts within one image.

Labels: an embedding of the label joins the latent draw, and the discriminator has an answer
for each class. Images pass a tanh, so that fakes have the range of images.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.networks.architecture import SLOPE
from dpaf_jax.networks.gans.equalised import EqualConv, EqualDense, pixel_norm
from dpaf_jax.networks.gans.growth import blended, smaller, weights_at
from dpaf_jax.networks.gans.sides import double, halve
from dpaf_jax.networks.layers import convolve_by_products, convolve_by_shape

_rectify = functools.partial(nn.leaky_relu, negative_slope=SLOPE)
_label_init = nn.initializers.normal(1.0)


class PgganGenerator(nn.Module):
    """Two convolutions at each side, and an image of each.

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
    def __call__(
        self, z: jax.Array, labels: jax.Array, progress: jax.Array | float = 1.0
    ) -> jax.Array:
        """[B, z_dim] normal draws and [B] labels to [B, H, W, C] images in (-1, 1)."""
        embed = nn.Embed(self.num_classes, z.shape[-1], embedding_init=_label_init)
        latent = jnp.concatenate([pixel_norm(z), pixel_norm(embed(labels))], axis=1)
        innermost = len(self.sides) - 1
        side, width = self.sides[-1], self.widths[-1]
        maps = EqualDense(side * side * width)(latent)
        maps = maps.reshape(len(z), side, side, width)
        maps = self._block(innermost, pixel_norm(_rectify(maps)), convolutions=1)
        images = [self._to_image(innermost, maps)]
        for i in reversed(range(innermost)):
            maps = self._block(i, double(maps, self.sides[i]), convolutions=2)
            images.insert(0, self._to_image(i, maps))
        return jnp.tanh(blended(images, weights_at(progress, innermost)))

    def _block(self, i: int, maps: jax.Array, convolutions: int) -> jax.Array:
        for j in range(convolutions):
            conv = EqualConv(
                self.widths[i], convolve_by_shape, name=f'convolution_{j}_{i}'
            )
            maps = pixel_norm(_rectify(conv(maps)))
        return maps

    def _to_image(self, i: int, maps: jax.Array) -> jax.Array:
        conv = EqualConv(
            self.channels, convolve_by_shape, size=1, gain=1.0, name=f'to_image_{i}'
        )
        return conv(maps)


class PgganDiscriminator(nn.Module):
    """The generator's reverse, with one answer for each class, picked by the label.

    It reads images at the resolution of the stage, real ones as fakes: no stage is asked
    about detail that the generator cannot make yet.

    Attributes:
        widths: maps at each side, from the image inwards.
        fc_width: units between the two fully connected layers.
        num_classes: K.
    """

    widths: tuple[int, ...]
    fc_width: int
    num_classes: int

    @nn.compact
    def __call__(
        self, images: jax.Array, labels: jax.Array, progress: jax.Array | float = 1.0
    ) -> jax.Array:
        """[B, H, W, C] images and [B] labels to [B] scores: higher for real."""
        innermost = len(self.widths) - 1
        weights = weights_at(progress, innermost)
        shown = blended(smaller(images, innermost), weights)
        views = smaller(shown, innermost)
        maps = self._from_image(0, views[0])
        for i in range(innermost):
            maps = self._convolve(i, 0, maps, self.widths[i])
            maps = halve(self._convolve(i, 1, maps, self.widths[i + 1]))
            coarse = self._from_image(i + 1, views[i + 1])
            maps = weights[i] * maps + (1 - weights[i]) * coarse
        maps = self._convolve(innermost, 0, maps, self.widths[-1])
        hidden = EqualDense(self.fc_width, name='hidden')(maps.reshape(len(maps), -1))
        last = EqualDense(self.num_classes, gain=1.0, name='answers')
        answers = last(_rectify(hidden))
        return jnp.sum(answers * jax.nn.one_hot(labels, self.num_classes), axis=1)

    def _from_image(self, i: int, view: jax.Array) -> jax.Array:
        conv = EqualConv(
            self.widths[i], convolve_by_products, size=1, name=f'from_image_{i}'
        )
        return _rectify(conv(view))

    def _convolve(self, i: int, j: int, maps: jax.Array, width: int) -> jax.Array:
        conv = EqualConv(width, convolve_by_products, name=f'convolution_{j}_{i}')
        return _rectify(conv(maps))
