"""Oriented wavelets: features of images that are fixed, public and tell shapes apart.

Two orders of a scattering transform (Bruna and Mallat 2013): an image is filtered in
`ORIENTATIONS` directions at two scales and only the modulus is kept; the finer moduli are
filtered once more. What remains is averaged over cells of 4 x 4 pixels, so it hardly changes
when a stroke moves by a pixel or bends a little. A linear classifier by DP-SGD on such
features beats deep networks trained privately end to end (Tramer and Boneh 2021).

Images above 32 x 32 are averaged first. What that hides comes back as an order for each octave
that was lost: moduli there, averaged over the same cells.

Small kernels at strides of 2 stand for the Fourier transforms of the original: nine times
faster on a CPU than with stride 1, with the same accuracy within 0.004.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.networks.images import averaged, reduced, reduction

ORIENTATIONS = 8
SIDE = 7  # of a kernel, in pixels
SIGMA, FREQUENCY, SLANT = 0.8, 0.75 * math.pi, 0.5  # of the Morlet wavelets
CELL = 4  # pixels along a cell's side
MAPS = 1 + 2 * ORIENTATIONS + ORIENTATIONS**2  # features of a cell and channel


def num_features(image_size: int, channels: int) -> int:
    """Length of an image's `wavelet_features`."""
    maps = MAPS + ORIENTATIONS * len(_octaves(image_size))
    return _cells(image_size) ** 2 * maps * channels


def wavelet_features(images: jax.Array) -> jax.Array:
    """Features of every image.

    Args:
        images: [B, H, W, C] float32 in [-1, 1], H = W.

    Returns:
        [B, num_features] float32, rows of norm at most 1. Brightness, first and second
        order, and above 32 x 32 the octaves of `_textures`, are each centred and scaled to
        equal norm; a blank image has zeros.
    """
    whole = (images + 1) / 2
    light = _padded(reduced(whole), CELL)
    fine, coarse = _moduli(light), _moduli(_halved(light))
    orders = (
        _halved(_halved(light)),
        jnp.concatenate([_halved(fine), coarse], axis=-1),
        _moduli(fine),
        *_textures(whole),
    )
    units = [_unit(maps) for maps in orders]
    return jnp.concatenate(units, axis=1) / math.sqrt(len(orders))


def _cells(side: int) -> int:
    """Along a side."""
    return -(-(side // reduction(side)) // CELL)


def _octaves(side: int) -> list[int]:
    """Divisors of the side at which an image is at least twice as fine as `reduced`."""
    factor = reduction(side)
    return [2**i for i in range(factor.bit_length() - 1) if factor % 2**i == 0]


def _textures(images: jax.Array) -> list[jax.Array]:
    """The octaves that `reduced` takes away, as [B, cells, cells, 8 C] each.

    Without them a generator may do there as it likes, and leaves a grid.
    """
    side, factor = images.shape[1], reduction(images.shape[1])
    whole = side // factor * factor
    images = _padded(images[:, :whole, :whole], CELL * factor)
    return [
        averaged(_moduli(averaged(images, octave)), CELL * factor // octave // 2)
        for octave in _octaves(side)
    ]


def _padded(images: jax.Array, multiple: int) -> jax.Array:
    height, width = (-images.shape[1] % multiple, -images.shape[2] % multiple)
    return jnp.pad(images, ((0, 0), (0, height), (0, width), (0, 0)))


def _halved(maps: jax.Array) -> jax.Array:
    """Means over squares of 2 x 2."""
    rows = maps[:, 0::2] + maps[:, 1::2]
    return (rows[:, :, 0::2] + rows[:, :, 1::2]) / 4


def _unit(maps: jax.Array) -> jax.Array:
    flat = maps.reshape(len(maps), -1)
    flat = flat - jnp.mean(flat, axis=1, keepdims=True)
    square = jnp.sum(jnp.square(flat), axis=1, keepdims=True)
    return flat * jax.lax.rsqrt(square + 1e-3)


def _moduli(maps: jax.Array) -> jax.Array:
    """Each map's response in every direction: [B, H, W, M] to [B, H/2, W/2, 8 M].

    Pixels go into channels by squares of 2 x 2: a stride of 2 without the slow
    gradient of strided convolutions.
    """
    batch, height, width, number = maps.shape
    half = (height // 2, width // 2)
    squares = maps.transpose(0, 3, 1, 2).reshape(-1, half[0], 2, half[1], 2)
    squares = squares.transpose(0, 1, 3, 2, 4).reshape(-1, *half, 4)
    waves = jax.lax.conv_general_dilated(
        squares,
        jnp.asarray(_KERNEL),
        window_strides=(1, 1),
        padding=((1, 2), (1, 2)),
        dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    )
    real, imaginary = jnp.split(waves, 2, axis=-1)
    moduli = jnp.sqrt(jnp.square(real) + jnp.square(imaginary) + 1e-6)
    moduli = moduli.reshape(batch, number, *half, ORIENTATIONS)
    return moduli.transpose(0, 2, 3, 1, 4).reshape(batch, *half, -1)


def _kernel() -> np.ndarray:
    """Morlet wavelets [4, 4, 4, 16]: the real parts of all directions, then the imaginary."""
    offset = np.arange(SIDE) - SIDE // 2
    y, x = np.meshgrid(offset, offset, indexing='ij')
    kernel = np.zeros((SIDE + 1, SIDE + 1, 2, ORIENTATIONS), np.float32)
    for i, angle in enumerate(np.pi * np.arange(ORIENTATIONS) / ORIENTATIONS):
        along = x * np.cos(angle) + y * np.sin(angle)
        across = y * np.cos(angle) - x * np.sin(angle)
        envelope = np.exp(-(along**2 + (SLANT * across) ** 2) / (2 * SIGMA**2))
        wave = np.exp(1j * FREQUENCY * along)
        wave = envelope * (wave - np.sum(envelope * wave) / np.sum(envelope))
        wave /= np.linalg.norm(wave)
        kernel[:SIDE, :SIDE, :, i] = np.stack([wave.real, wave.imag], axis=-1)
    squares = kernel.reshape(4, 2, 4, 2, -1).transpose(0, 2, 1, 3, 4)
    return squares.reshape(4, 4, 4, -1)


_KERNEL = _kernel()
