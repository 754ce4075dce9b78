"""What a sampler offers: images of given classes from released parameters."""

from typing import Any, Protocol, runtime_checkable

import jax

Params = Any


class Sampler(Protocol):
    """Draws images of given classes; equal settings make equal ones."""

    def __hash__(self) -> int: ...

    def init(self, key: jax.Array) -> Params:
        """Random parameters, as training starts from: their names and shapes."""

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """[B] int32 labels to [B, H, W, C] float32 images in [-1, 1]."""


@runtime_checkable
class LabellingSampler(Protocol):
    """What a sampler has besides, if its images get their labels afterwards."""

    def label(self, params: Params, images: jax.Array) -> jax.Array:
        """[B, H, W, C] images in [-1, 1] to their classes, [B] int32."""


@runtime_checkable
class StoredImageSampler(Protocol):
    """What a sampler has besides, if it holds its images instead of making them.

    Attributes:
        number: held of each class.
    """

    @property
    def number(self) -> int: ...

    def nth(self, params: Params, labels: jax.Array, turn: jax.Array) -> jax.Array:
        """Of each label [B] the image whose turn [B] it is, int32 from 0 on."""
