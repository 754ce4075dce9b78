"""PATE-GAN's teachers: G-PATE's, but each says of an image only whether it looks real."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.methods.g_pate.teachers import Teacher, Teachers, cell
from dpaf_jax.networks.discriminator import label_planes


class Coarse(nn.Module):
    """A discriminator of means over cells of pixels: a generator as smooth has no more.

    Attributes:
        cell: side of a cell in pixels.
        widths, num_classes: of `Teacher`.
    """

    cell: int
    widths: tuple[int, ...]
    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, H, W, C] images and [B] labels to [B] logits: above 0 for real."""
        if self.cell > 1:
            side = (self.cell, self.cell)
            images = nn.avg_pool(images, side, side, 'SAME', count_include_pad=False)
        return Teacher(self.widths, self.num_classes)(images, labels)


@dataclasses.dataclass(frozen=True)
class Voters(Teachers):
    """Teachers who say which images look real."""

    @property
    def network(self) -> Coarse:
        """Of each of them."""
        g_pate, classes = self.config.g_pate, self.config.data.num_classes
        return Coarse(cell(self.config), (g_pate.width, g_pate.fc_width), classes)

    def say(self, params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        """Which images look real to one teacher.

        As printed: those that it takes for real. It takes none, as soon as teachers learn
        faster than the generator. With `relative` those that look more real to it than the
        mean image shown of that class: about a half always does.

        Args:
            params: of the teacher.
            images: [s, H, W, C].
            labels: [s].

        Returns:
            [s] float32 of 0 and 1, whatever the parameters; 0 for NaN.
        """
        logits = self.network.apply(params, images, labels)
        bar = jnp.zeros_like(logits)
        if self.config.pate_gan.relative:
            planes = label_planes(labels, self.config.data.num_classes)
            means = logits @ planes / jnp.maximum(jnp.sum(planes, axis=0), 1)
            bar = planes @ means
        return (logits > bar).astype(jnp.float32)
