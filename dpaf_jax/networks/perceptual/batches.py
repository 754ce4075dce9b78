"""Passes images through a network, batch by batch."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import ProgressFn

# [B, H, W, C] -> pooled [B, D] and probabilities [B, K].
SeeFn = Callable[[np.ndarray], tuple[jax.Array, jax.Array]]


class Features(NamedTuple):
    """What a network says of N images.

    Attributes:
        pooled: [N, D] float32, the mean over positions before the last layer.
        probabilities: [N, K] float32, of ImageNet's classes.
    """

    pooled: np.ndarray
    probabilities: np.ndarray


def features(
    see: SeeFn,
    images: np.ndarray,
    size: int,
    name: str,
    on_batch: ProgressFn = lambda num: None,
) -> Features:
    """What a network says of images, in their order.

    Args:
        see: the network.
        images: [N, H, W, C], N >= 1.
        size: of a batch.
        name: of the network.
        on_batch: given how many images each batch has.

    Raises:
        UserError: C is neither 1 nor 3.
    """
    if images.shape[-1] not in (1, 3):
        raise UserError(
            name,
            f'images have {images.shape[-1]} channels',
            'The features are of grey (1) or colour (3)',
        )
    parts, size = [], min(size, len(images))
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        # The last batch is filled up: one shape to compile.
        filled = np.resize(batch, (size, *batch.shape[1:]))
        parts.append([np.asarray(a)[: len(batch)] for a in see(filled)])
        on_batch(len(batch))
    return Features(*(np.concatenate(part) for part in zip(*parts, strict=True)))
