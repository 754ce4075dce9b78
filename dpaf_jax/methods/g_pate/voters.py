"""PATE-GAN's teachers: G-PATE's, but each says of an image only whether it looks real."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.methods.g_pate.teachers import Teachers


@dataclasses.dataclass(frozen=True)
class Voters(Teachers):
    """Teachers who say which images look real."""

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
            planes = jax.nn.one_hot(labels, self.config.data.num_classes)
            means = logits @ planes / jnp.maximum(jnp.sum(planes, axis=0), 1)
            bar = planes @ means
        return (logits > bar).astype(jnp.float32)
