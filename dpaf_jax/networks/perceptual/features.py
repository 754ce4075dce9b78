"""What a network that has learnt to see makes of an image, place by place.

The network has learnt from other images alone (efficientnet.py: public photographs; leaves.py:
random shapes), so its features are a fixed function of an image. Their means say which edges,
textures and parts of things images of a class have where, the means of their squares how
various images are. A generator that has both, too, draws things instead of averages of pixels
(Harder et al. 2023, DP-MEPF).
"""

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpaf_jax.config.methods.dpaf import LEAVES, PERCEPTUAL
from dpaf_jax.networks.images import averaged
from dpaf_jax.networks.perceptual import efficientnet, leaves
from dpaf_jax.networks.pieces import in_pieces
from dpaf_jax.networks.rows import side_by_side, unit_rows


class Network(NamedTuple):
    """One that sees.

    Attributes:
        params: reads its weights.
        stages: of these and images, maps of several depths.
        widths: of each stage its maps, and by how much sides are divided.
        inputs: sides in pixels that it may be shown images at, the smallest first (below it
            sees little), with the places along a side that maps are then averaged to.
    """

    params: Callable[[], Any]
    stages: Callable[[Any, jax.Array], list[jax.Array]]
    widths: tuple[tuple[int, int], ...]
    inputs: tuple[tuple[int, int], ...]


# By the name of the tap, and of `classifier.features`.
NETWORKS = {
    PERCEPTUAL: Network(
        params=efficientnet.trunk,
        stages=efficientnet.stages,
        widths=tuple((width, d) for _, width, d in efficientnet.STAGES),
        inputs=((64, 4), (128, 4)),
    ),
    LEAVES: Network(
        params=leaves.load_params,
        stages=leaves.stages,
        widths=leaves.STAGES,
        inputs=((48, 3), (64, 4)),
    ),
}


def tapped(taps: Collection[str]) -> str:
    """The network that a row's taps name, of two the first of `NETWORKS`; '' if none."""
    return next(filter(taps.__contains__, NETWORKS), '')


def num_features(name: str, image_size: int) -> int:
    """Columns of `network_features`."""
    network = NETWORKS[name]
    side, places = _input(network, image_size)
    return sum(width * min(places, side // d) ** 2 for width, d in network.widths)


def network_features(name: str, params: Any, images: jax.Array) -> jax.Array:
    """Maps of all stages, each scaled to the same norm.

    Args:
        name: of `NETWORKS`.
        params: its own.
        images: [B, H, H, 1 or 3] float32 in [-1, 1].

    Returns:
        [B, num_features(name, H)] float32 of norm at most 1.
    """
    network = NETWORKS[name]
    return jnp.concatenate([_seen(network, params, x) for x in in_pieces(images)])


def _seen(network: Network, params: Any, images: jax.Array) -> jax.Array:
    batch, channels = len(images), images.shape[-1]
    side, places = _input(network, images.shape[1])
    shape = (batch, side, side, channels)
    resized = jax.image.resize(images, shape, 'linear', antialias=True)
    maps = network.stages(params, resized)
    coarse = [averaged(x, x.shape[1] // min(places, x.shape[1])) for x in maps]
    return side_by_side([unit_rows(x.reshape(batch, -1)) for x in coarse])


def with_squares(rows: jax.Array) -> jax.Array:
    """[B, F] features of norm at most 1, to [B, 2 F]: their squares beside them, likewise."""
    squares = unit_rows(jnp.square(rows) * math.sqrt(rows.shape[1]))
    return side_by_side([rows, squares])


def _input(network: Network, image_size: int) -> tuple[int, int]:
    """Of `inputs` the first that is as large as the image; the last where none is."""
    fits = (each for each in network.inputs if each[0] >= image_size)
    return next(fits, network.inputs[-1])
