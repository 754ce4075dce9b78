"""The sampler of a condensed set: its images are the released parameters."""

import dataclasses

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.release.samplers.protocol import Params


@dataclasses.dataclass(frozen=True)
class CondensedSampler:
    """Deals out the images that it holds of each class.

    Attributes:
        shape: (H, W, C) of an image.
        num_classes: K.
        number: n, held of each class.
        parts: along a side, how many of them take the room of one image: they are held at
            a side of H / parts, rounded up, and enlarged when dealt.
    """

    shape: tuple[int, int, int]
    num_classes: int
    number: int
    parts: int

    def init(self, key: jax.Array) -> Params:
        """{'images': [K, n, h, w, C]} in [-1, 1]: grey, with noise."""
        high, wide, channels = self.shape
        small = -(-high // self.parts), -(-wide // self.parts), channels
        noise = jax.random.normal(key, (self.num_classes, self.number, *small))
        return {'images': jnp.clip(0.3 * noise, -1, 1)}

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """See `Sampler`: one after the other within a call, from any one on."""
        start = jax.random.randint(key, (), 0, self.number)
        turns = jnp.cumsum(jax.nn.one_hot(labels, self.num_classes), axis=0) - 1
        own = jnp.take_along_axis(turns, labels[:, None], axis=1)[:, 0]
        return self.nth(params, labels, start + own.astype(jnp.int32))

    def nth(self, params: Params, labels: jax.Array, turn: jax.Array) -> jax.Array:
        """See `StoredImageSampler`; after the last one the first one comes again."""
        return self.shown(jnp.asarray(params['images'])[labels, turn % self.number])

    def shown(self, small: jax.Array) -> jax.Array:
        """[B, h, w, C] to [B, H, W, C]."""
        if self.parts == 1:
            return small
        return jax.image.resize(small, (len(small), *self.shape), 'bilinear')


def condensed_sampler(config: Config) -> CondensedSampler:
    """Of NDPDC."""
    fields, data = config.ndpdc, config.data
    return CondensedSampler(
        data.shape, data.num_classes, fields.held_per_class, fields.parts
    )
