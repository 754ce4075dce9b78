"""What DPAGG sums of one image: tapped features, joined to one bounded row."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.config import Config
from dpaf_jax.config.methods.dpaf import PERCEPTUAL
from dpaf_jax.methods.dpaf.networks import Networks
from dpaf_jax.networks import contrast
from dpaf_jax.networks.architecture import Architecture, make_architecture
from dpaf_jax.networks.discriminator import label_planes
from dpaf_jax.networks.images import reduced
from dpaf_jax.networks.instance_norm import simplified_instance_norm
from dpaf_jax.networks.perceptual import features as perceptual
from dpaf_jax.networks.wavelets import num_features, wavelet_features
from dpaf_jax.runtime.errors import UserError

# Of norm at most 1 each.
UNIT_TAPS = (
    'count', 'pixels', 'contrast', 'fourier', 'wavelet', 'shape', 'labeller', PERCEPTUAL
)  # fmt: skip
TAPS = (*UNIT_TAPS, 'conv1', 'conv2')
FOURIER_COLUMNS, SHAPE_COLUMNS, LABELLER_COLUMNS = 1024, 2048, 512
# Length scale of the Fourier features per unit of sqrt(pixels): images of one class are
# about this far apart, so the features tell them apart but do not single them out.
FOURIER_SCALE = 0.2
# Length scales of Fourier features of wavelets, which have norm 1. Images of one class are .5
# from their nearest and .9 from others: the finest see what hardly an image is like.
SHAPE_SCALES = 0.15, 0.6
SHAPE_DIRECTIONS = (
    512  # that wavelets are projected on before: distances stay, within a few %
)
# Length scales of Fourier features of a labeller's logits, in units of the length of a
# class's weights, which is how large a logit can be: from near a border to far from all.
LABELLER_SCALES = 1 / 40, 1 / 6


@dataclasses.dataclass(frozen=True)
class Block:
    """One tap's part of a row: its shape, the bound on its norm, its share of the row's.

    Attributes:
        share: of the row's squared bound; those of a row add up to 1.
    """

    name: str
    shape: tuple[int, ...]
    bound: float
    share: float

    @property
    def size(self) -> int:
        """Number of columns."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class TapLayout:
    """The columns of a row.

    With the single canonical tap 'conv2' the row is SIN's output itself, of norm at most
    sqrt(m) p (DPAF equation 2). Several taps are scaled to a joint bound of 1, and to equal
    bounds, so that none drowns another; `count` gets less, see `_shares`.

    Attributes:
        blocks: in the order of the columns.
        bound: l2 norm bound of a whole row: the sensitivity of DPAGG.
    """

    blocks: tuple[Block, ...]
    bound: float

    @property
    def size(self) -> int:
        """Number of columns F."""
        return sum(block.size for block in self.blocks)

    def scale(self, block: Block) -> float:
        """What a block is multiplied with inside a row."""
        return self.bound * math.sqrt(block.share) / block.bound

    def __contains__(self, name: str) -> bool:
        return any(block.name == name for block in self.blocks)

    def join(self, parts: dict[str, jax.Array]) -> jax.Array:
        """{tap: [B, *shape]} to rows [B, F]."""
        flat = [
            parts[b.name].reshape(len(parts[b.name]), -1) * self.scale(b)
            for b in self.blocks
        ]
        return jnp.concatenate(flat, axis=1)

    def part(self, rows: jax.Array, name: str) -> jax.Array:
        """Takes one tap out of rows or aggregates [A, F] and undoes its scale."""
        start = 0
        for block in self.blocks:
            if block.name == name:
                columns = rows[:, start : start + block.size] / self.scale(block)
                return columns.reshape(len(rows), *block.shape)
            start += block.size
        raise KeyError(name)

    def beside(self, rows: jax.Array, name: str) -> jax.Array:
        """[A, n] all other taps of rows [A, F] but the count, in units of this one's bound.

        Nothing where this one is not tapped.
        """
        nothing = rows[:, :0]
        if name not in self:
            return nothing
        (own,) = (b for b in self.blocks if b.name == name)
        others = [
            self.part(rows, b.name).reshape(len(rows), -1) * self.scale(b)
            for b in self.blocks
            if b.name not in (name, 'count')
        ]
        return jnp.concatenate([nothing, *others], axis=1) / self.scale(own)

    def replaced(self, rows: jax.Array, name: str, part: jax.Array) -> jax.Array:
        """Rows [A, F] with another one's tap [A, *shape] in its place."""
        parts = {block.name: self.part(rows, block.name) for block in self.blocks}
        return self.join({**parts, name: part})


def make_tap_layout(config: Config) -> TapLayout:
    """The columns of DPAGG for the config's taps; UserError if they do not fit."""
    layout, taps = make_architecture(config), config.dpaf.tap_names
    if set(taps) - set(TAPS) or len(set(taps)) < len(taps) or set(taps) == {'count'}:
        raise UserError(
            'config.dpaf.taps',
            f'is {config.dpaf.taps!r}',
            f'Join any of {", ".join(TAPS)} with commas, each once, not count alone',
        )
    shapes = _shapes(config, layout)
    bounds = dict.fromkeys(UNIT_TAPS, 1.0)
    shares = _shares({tap: math.prod(shapes[tap]) for tap in taps})
    blocks = tuple(
        Block(tap, shapes[tap], bounds.get(tap) or _sin_bound(shapes[tap]), shares[tap])
        for tap in taps
    )
    return TapLayout(blocks, blocks[0].bound if len(blocks) == 1 else 1.0)


def _shares(sizes: dict[str, int]) -> dict[str, float]:
    """Each tap's share of a row's squared bound, by its number of columns.

    A mean of F columns is their noisy sum over a noisy count. With share s for the count, its
    squared error is F / (1 - s) of the sum's noise and 1 / s of the count's, least at
    s = 1 / (1 + sqrt(F)). The other taps share the rest equally.
    """
    others = [size for tap, size in sizes.items() if tap != 'count']
    count = 1 / (1 + math.sqrt(sum(others))) if 'count' in sizes else 0.0
    return {
        tap: count if tap == 'count' else (1 - count) / len(others) for tap in sizes
    }


def _shapes(config: Config, layout: Architecture) -> dict[str, tuple[int, ...]]:
    size = config.data.image_size
    injected = config.networks.label_injection == 'first_layer' and layout.parts[0] == 1
    maps1 = layout.maps(1) + (config.data.num_classes if injected else 0)
    return {
        'count': (1,),
        'pixels': (size, size, config.data.channels),
        'contrast': (contrast.COLUMNS,),
        'fourier': (FOURIER_COLUMNS,),
        'wavelet': (num_features(size, config.data.channels),),
        'shape': (SHAPE_COLUMNS,),
        'labeller': (LABELLER_COLUMNS,),
        PERCEPTUAL: (2 * perceptual.num_features(size),),
        'conv1': (layout.side(1), layout.side(1), maps1),
        'conv2': (layout.side(2), layout.side(2), layout.maps(2)),
    }


def _sin_bound(shape: tuple[int, ...]) -> float:
    side, _, maps = shape
    return math.sqrt(maps) * side


def sin_maps(
    networks: Networks, params: dict[str, Any], images: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The normalised maps behind conv1 and behind conv2*.

    SIN comes last, as in the paper, and not between the layers.

    Args:
        networks: the modules.
        params: with 'conv1' and 'conv2'.
        images: [B, H, W, C] float32 in [-1, 1].
        labels: [B] int32; outside the classes: no label.

    Returns:
        [B, p1, p1, m1] and [B, p, p, m], of norm at most sqrt(m) p.
    """
    planes = label_planes(labels, networks.num_classes)
    maps1 = networks.conv1.apply(params['conv1'], images, planes)
    maps2 = networks.conv2.apply(params['conv2'], maps1)
    return simplified_instance_norm(maps1), simplified_instance_norm(maps2)


def features(
    networks: Networks, params: dict[str, Any], images: jax.Array, labels: jax.Array
) -> dict[str, jax.Array]:
    """Every tap of a batch, within its block's bound.

    Args:
        networks: the modules.
        params: as for `sin_maps`, and 'contrast', 'fourier', 'shape', 'labeller', 'perceptual'
            if those are tapped.
        images: [B, H, W, C] float32 in [-1, 1].
        labels: [B] int32.

    Returns:
        {tap: [B, *shape]}. Unused taps cost nothing: the compiler drops them.
    """
    maps1, maps2 = sin_maps(networks, params, images, labels)
    light = (images + 1) / 2  # so that black adds nothing
    taps = {
        'count': jnp.ones((len(images), 1), jnp.float32),
        'pixels': _unit(light.reshape(len(images), -1)).reshape(images.shape),
        'wavelet': wavelet_features(images),
        'conv1': maps1,
        'conv2': maps2,
    }
    if known := params.get('contrast'):
        taps['contrast'] = _unit(contrast.contrast_features(light, known))
    if fourier := params.get('fourier'):
        small = reduced(light).reshape(len(images), -1)
        waves = jnp.cos(small @ fourier['weights'] + fourier['phases'])
        taps['fourier'] = _unit(waves)
    seen = {'wavelet': taps['wavelet']}
    if network := params.get(PERCEPTUAL):
        seen[PERCEPTUAL] = perceptual.perceptual_features(network, images)
        taps[PERCEPTUAL] = perceptual.with_squares(seen[PERCEPTUAL])
    for tap, read in (('shape', 'wavelet'), ('labeller', networks.labeller_reads)):
        if known := params.get(tap):
            values = seen[read] @ known['weights']
            waves = jnp.cos(values @ known['directions'] + known['phases'])
            taps[tap] = _unit(waves)
    return taps


def _unit(vectors: jax.Array) -> jax.Array:
    """[B, n] vectors scaled to norm at most 1; 0 stays 0, and has a gradient."""
    square = jnp.sum(jnp.square(vectors), axis=1, keepdims=True)
    return vectors * jax.lax.rsqrt(square + 1e-6)


def init_fourier(key: jax.Array, image: jax.Array) -> dict[str, jax.Array]:
    """Random Fourier features of an image (Rahimi and Recht 2007): never trained.

    Args:
        key: public coins.
        image: [1, H, W, C]; gives the shape.
    """
    pixels = reduced(image).size
    key_weights, key_phases = jax.random.split(key)
    weights = jax.random.normal(key_weights, (pixels, FOURIER_COLUMNS))
    phases = jax.random.uniform(key_phases, (FOURIER_COLUMNS,), maxval=2 * math.pi)
    return {'weights': weights / (FOURIER_SCALE * math.sqrt(pixels)), 'phases': phases}


def init_labeller(key: jax.Array, weights: jax.Array) -> dict[str, jax.Array]:
    """Random Fourier features of a labeller's logits, at many length scales: never trained.

    Their class means say how often images of a class are how near to which border.

    Args:
        key: public coins.
        weights: [features, K] of the labeller: public or noised.
    """
    # A labeller that has learnt nothing has no length; its logits are all 0.
    length = jnp.sqrt(jnp.sum(jnp.square(weights)) / weights.shape[1] + 1e-12)
    waves = _init_waves(key, weights.shape[1], LABELLER_COLUMNS, LABELLER_SCALES)
    waves['directions'] /= length
    return {'weights': weights, **waves}


def init_shape(key: jax.Array, image_size: int, channels: int) -> dict[str, jax.Array]:
    """Random Fourier features of wavelets, at many length scales: never trained.

    Their class means are a kernel mean embedding (Gretton et al. 2012): they say how densely
    images of a class lie about each place, so that what lies between two shapes, and is
    neither, is missed there.

    Args:
        key: public coins.
        image_size, channels: of the images.
    """
    number = num_features(image_size, channels)
    key_weights, key_waves = jax.random.split(key)
    weights = jax.random.normal(key_weights, (number, SHAPE_DIRECTIONS))
    waves = _init_waves(key_waves, SHAPE_DIRECTIONS, SHAPE_COLUMNS, SHAPE_SCALES)
    return {'weights': weights / math.sqrt(SHAPE_DIRECTIONS), **waves}


def _init_waves(
    key: jax.Array, size: int, columns: int, scales: tuple[float, float]
) -> dict[str, jax.Array]:
    """Directions [size, columns] and phases of cosines, of length scales between two."""
    key_weights, key_scales, key_phases = jax.random.split(key, 3)
    low, high = np.log(scales)
    lengths = jax.random.uniform(key_scales, (columns,), minval=low, maxval=high)
    directions = jax.random.normal(key_weights, (size, columns))
    phases = jax.random.uniform(key_phases, (columns,), maxval=2 * math.pi)
    return {'directions': directions / jnp.exp(lengths), 'phases': phases}
