"""The random Fourier features that taps are made of: of pixels, and of other features."""

import math

import jax
import jax.numpy as jnp

from dpaf_jax.networks.fixed.cosines import Cosines, init_cosines
from dpaf_jax.networks.fixed.wavelets import num_features
from dpaf_jax.networks.images import reduced

FOURIER_COLUMNS, SHAPE_COLUMNS, LABELLER_COLUMNS = 1024, 2048, 512
# Length scale of the Fourier features per unit of sqrt(pixels): images of one class are
# about this far apart, so the features tell them apart but do not single them out.
FOURIER_SCALE = 0.2
# Length scales of Fourier features of wavelets, which have norm 1. Images of one class are .5
# from their nearest and .9 from others: the finest see what hardly an image is like.
SHAPE_SCALES = 0.15, 0.6
# The same of what a network sees, of norm 1: photographs of a class are .7 from their nearest
# and .9 from others.
KIND_SCALES = 0.25, 1.0
# That either are projected on before: distances stay, within a few per cent.
SHAPE_DIRECTIONS = 512
# Length scales of Fourier features of a labeller's logits, of which none is far above 1: from
# near a border to far from all.
LABELLER_SCALES = 1 / 40, 1 / 6


def init_fourier(key: jax.Array, image_size: int, channels: int) -> Cosines:
    """Of an image's pixels, at one length scale.

    Args:
        key: public coins.
        image_size, channels: of the images.
    """
    pixels = reduced(jnp.zeros((1, image_size, image_size, channels))).size
    length = FOURIER_SCALE * math.sqrt(pixels)
    return init_cosines(key, pixels, FOURIER_COLUMNS, (length, length))


def init_shape(key: jax.Array, image_size: int, channels: int) -> Cosines:
    """Of wavelets, at many length scales: what lies between two shapes is neither.

    Args:
        key: public coins.
        image_size, channels: of the images.
    """
    return _projected(key, num_features(image_size, channels), SHAPE_SCALES)


def init_kinds(key: jax.Array, number: int) -> Cosines:
    """Of what a network sees: what kinds of images a class has, and how many of each.

    Args:
        key: public coins.
        number: of the network's features.
    """
    return _projected(key, number, KIND_SCALES)


def _projected(key: jax.Array, number: int, scales: tuple[float, float]) -> Cosines:
    key_weights, key_cosines = jax.random.split(key)
    weights = jax.random.normal(key_weights, (number, SHAPE_DIRECTIONS))
    found = init_cosines(key_cosines, SHAPE_DIRECTIONS, SHAPE_COLUMNS, scales)
    return {'weights': weights / math.sqrt(SHAPE_DIRECTIONS), **found}


def init_labeller(key: jax.Array, learnt: dict[str, jax.Array]) -> Cosines:
    """Of a labeller's logits: how often images of a class are how near to which border.

    A labeller of both sides of an image (`dpaf.mirrored`) is asked here about one: the other
    would cost a second look of the networks at every fake.

    Args:
        key: public coins.
        learnt: `weights` [features, K], and the `bias` [K] if it has one: public or noised.
    """
    weights = learnt['weights']
    found = init_cosines(key, weights.shape[1], LABELLER_COLUMNS, LABELLER_SCALES)
    if 'bias' in learnt:
        found['phases'] += learnt['bias'] @ found['directions']
    return {'weights': weights, **found}
