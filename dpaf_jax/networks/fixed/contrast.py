"""How strong an image's contrasts and hues are: what features of one norm cannot say.

Fourier features of a few statistics of each channel, so that class means tell how often
images of a class are bright, flat or rough. Without them nothing that DPAGG releases says
how far light and dark lie apart, and generators of photographs overdo it.

Colours are seen as brightness and two hues. Hues of photographs vary little and are smooth,
which channels of red, green and blue hide: there each channel is mostly brightness. So the
statistics are of hues as such, and colour images have Fourier features of a coarse map of
their hues, too (docs/research/2026-11-27-hues.md). Those of the whole map tell how colours go
together, but hardly where they vary, since each adds up all places: others are of windows
(docs/research/2026-11-30-hues-by-place.md).
"""

import math

import jax
import jax.numpy as jnp

from dpaf_jax.networks.fixed.cosines import Cosines, cosines_of, init_cosines
from dpaf_jax.networks.images import averaged, opponent

COLUMNS, HUE_COLUMNS = 128, 256  # cosines of the statistics, and of the map
WINDOW_COLUMNS = 256  # cosines of windows of the map
STATISTICS = 3  # of a channel
SCALES = 0.5, 4.0  # length scales of the statistics' cosines: from fine to coarse
MEAN, SPREAD = 4.0, 2.0  # what makes a usual difference of each statistic about 1
PLACES, WINDOW = 8, 2  # along a side of the map, at least; of a window
# Length scales of the map's cosines per root of its entries: those of two photographs of one
# kind are about .08 apart.
HUE_SCALES = 0.026, 0.13


def num_features(channels: int) -> int:
    """Columns of `contrast_features`."""
    return COLUMNS + (HUE_COLUMNS + WINDOW_COLUMNS) * (channels == 3)


def contrast_features(images: jax.Array, params: dict[str, Cosines]) -> jax.Array:
    """Cosines of the statistics of each image, and of a map of its hues.

    Args:
        images: [B, H, W, C] float32 in [0, 1].
        params: of `init_contrast`.

    Returns:
        [B, num_features(C)] float32 in [-1, 1].
    """
    seen = opponent(images)
    waves = [cosines_of(_statistics(seen), params['statistics'])]
    if 'hues' in params:
        waves.append(cosines_of(_hues(seen), params['hues']))
    return jnp.concatenate(waves, axis=1)


def _statistics(seen: jax.Array) -> jax.Array:
    """[B, 3 C]: each channel's mean, log spread, and log difference of neighbours."""
    mean = jnp.mean(seen, axis=(1, 2))
    variance = jnp.mean(jnp.square(seen - mean[:, None, None]), axis=(1, 2))
    down = jnp.mean(jnp.abs(seen[:, 1:] - seen[:, :-1]), axis=(1, 2))
    right = jnp.mean(jnp.abs(seen[:, :, 1:] - seen[:, :, :-1]), axis=(1, 2))
    # Blank images have a logarithm and a gradient, too.
    spread = jnp.log(jnp.sqrt(variance + 1e-4) + 0.02)
    rough = jnp.log(down + right + 0.01)
    return jnp.concatenate([MEAN * mean, SPREAD * spread, SPREAD * rough], axis=1)


def _hues(seen: jax.Array) -> jax.Array:
    """[B, n]: both hues, averaged over the places of a coarse grid."""
    places = averaged(seen[..., 1:], _reduction(seen.shape[1]))
    return places.reshape(len(seen), -1)


def _reduction(side: int) -> int:
    return max(1, side // PLACES)


def init_contrast(key: jax.Array, image_size: int, channels: int) -> dict[str, Cosines]:
    """Random directions at many length scales (Rahimi and Recht 2007): never trained.

    Args:
        key: public coins.
        image_size, channels: of the images.
    """
    unit = math.sqrt(channels)
    scales = SCALES[0] * unit, SCALES[1] * unit
    made = {'statistics': init_cosines(key, STATISTICS * channels, COLUMNS, scales)}
    if channels == 3:
        side = image_size // _reduction(image_size)
        whole = _of_map(jax.random.fold_in(key, 1), side, side, HUE_COLUMNS)
        windows = _of_windows(jax.random.fold_in(key, 2), side)
        both = jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), whole, windows)
        made['hues'] = both
    return made


def _of_map(key: jax.Array, side: int, seen: int, columns: int) -> Cosines:
    """Of a map of `side` places a side, of which a cosine sees a square of `seen` a side."""
    unit = math.sqrt(2) * seen
    scales = HUE_SCALES[0] * unit, HUE_SCALES[1] * unit
    return init_cosines(key, 2 * side**2, columns, scales)


def _of_windows(key: jax.Array, side: int) -> Cosines:
    """Each cosine sees a window of the map, at a random place, and nothing else."""
    key_place, key_cosines = jax.random.split(key)
    made = _of_map(key_cosines, side, WINDOW, WINDOW_COLUMNS)
    first = jax.random.randint(key_place, (2, WINDOW_COLUMNS), 0, side - WINDOW + 1)
    at = jnp.arange(side)[:, None] - first[:, None]  # [2, side, columns]
    down, right = (at >= 0) & (at < WINDOW)
    inside = jnp.repeat((down[:, None] & right).reshape(side**2, -1), 2, axis=0)
    return made | {'directions': made['directions'] * inside}
