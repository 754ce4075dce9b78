"""Pairs of pictures of one made-up object: another pose, light and ground each time.

An object is one to six blobs on top of each other, each with a border that waves and a fill
that is flat, striped or shaded. They lie on a plain, a clouded or a busy ground of more such
blobs: dead leaves (Lee, Mumford and Huang 2001). No photograph has a part in them.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

SIDE = 32  # pixels
PARTS, GROUND = 6, 6  # blobs of an object at most, and of a busy ground
WAVES = 4  # of a border, around the blob
SOFT = 0.035  # of an edge, in units of half the side

Blobs = dict[str, jax.Array]


def pairs(key: jax.Array, number: int) -> jax.Array:
    """[number, 2, SIDE, SIDE, 3] float32 in [-1, 1]: two pictures of each object."""
    return jax.vmap(_pair)(jax.random.split(key, number))


def _pair(key: jax.Array) -> jax.Array:
    keys = jax.random.split(key, 6)
    made = _blobs(keys[1], PARTS, spread=0.28, radii=(0.12, 0.55))
    made = _alike(keys[0], made)
    made['radius'] = jnp.sort(made['radius'])[::-1]  # small ones on large ones
    parts = jax.random.randint(keys[2], (), 1, PARTS + 1)
    made['radius'] = jnp.where(jnp.arange(PARTS) < parts, made['radius'], -1.0)
    return jnp.stack([_view(keys[4], made), _view(keys[5], made)])


def _blobs(
    key: jax.Array, number: int, spread: float, radii: tuple[float, float]
) -> Blobs:
    """Random ones; lengths in units of half the side of a picture."""
    keys = jax.random.split(key, 12)
    normal, uniform = jax.random.normal, jax.random.uniform
    fine = jnp.sqrt(jnp.arange(1, WAVES + 1))[:, None]
    waves = 0.22 * normal(keys[4], (number, WAVES, 2)) / fine
    return {
        'centre': spread * normal(keys[0], (number, 2)),
        'radius': _log_uniform(keys[1], (number,), *radii),
        'squash': jnp.exp(0.6 * jnp.abs(normal(keys[2], (number,)))),
        'angle': uniform(keys[3], (number,), maxval=math.pi),
        'waves': waves * (uniform(keys[5], (number, 1, 1)) < 0.6),
        'colour': uniform(keys[6], (number, 3)),
        'contrast': 0.25 * normal(keys[7], (number, 3)),
        'stripes': normal(keys[8], (number, 2))
        * _log_uniform(keys[9], (number, 1), 2, 28),
        'phase': uniform(keys[10], (number,), maxval=2 * math.pi),
        'fill': uniform(keys[11], (number,)),
    }


def _log_uniform(key: jax.Array, shape: Any, low: float, high: float) -> jax.Array:
    least, most = math.log(low), math.log(high)
    return jnp.exp(jax.random.uniform(key, shape, minval=least, maxval=most))


def _alike(key: jax.Array, blobs: Blobs) -> Blobs:
    """The same in colours about a common one, more or less grey."""
    keys = jax.random.split(key, 3)
    number = len(blobs['radius'])
    grey = jax.random.uniform(keys[0], (number, 1))
    strength = jax.random.uniform(keys[1]) ** 1.5
    hue = 0.2 * jax.random.normal(keys[2], (3,))
    own = blobs['colour'] - jnp.mean(blobs['colour'], axis=1, keepdims=True)
    return {**blobs, 'colour': jnp.clip(grey + strength * (0.7 * own + hue), 0, 1)}


def _view(key: jax.Array, made: Blobs) -> jax.Array:
    """One picture of an object."""
    keys = jax.random.split(key, 5)
    places = _places()
    canvas = _ground(keys[0], places)
    canvas = _painted(canvas, _posed(keys[1], places), _shaken(keys[2], made))
    return 2 * jnp.clip(_lit(keys[3], canvas, places), 0, 1) - 1


def _places() -> jax.Array:
    """[SIDE, SIDE, 2] of pixels, in [-1, 1]."""
    along = (jnp.arange(SIDE) + 0.5) / SIDE * 2 - 1
    return jnp.stack(jnp.meshgrid(along, along), -1)


def _smooth(key: jax.Array, channels: int) -> jax.Array:
    coarse = jax.random.normal(key, (4, 4, channels))
    return jax.image.resize(coarse, (SIDE, SIDE, channels), 'cubic')


def _ground(key: jax.Array, places: jax.Array) -> jax.Array:
    """Black or white, of one colour, clouded, or busy."""
    keys = jax.random.split(key, 7)
    kind = jax.random.uniform(keys[0])
    black_or_white = jnp.round(jax.random.uniform(keys[1])) * jnp.ones(3)
    colour = jnp.where(kind < 0.25, black_or_white, jax.random.uniform(keys[2], (3,)))
    clouds = jnp.where(kind < 0.5, 0.0, 0.15) * _smooth(keys[3], 3)
    canvas = jnp.broadcast_to(colour, (SIDE, SIDE, 3)) + clouds
    others = _blobs(keys[4], GROUND, spread=0.8, radii=(0.1, 0.6))
    return jnp.where(
        kind > 0.7, _painted(canvas, places, _alike(keys[5], others)), canvas
    )


def _posed(key: jax.Array, places: jax.Array) -> jax.Array:
    """Places in the object's frame: turned, shifted, sheared, mirrored and bent a little."""
    keys = jax.random.split(key, 6)
    turn = 0.25 * jax.random.normal(keys[0])
    size = jnp.exp(0.18 * jax.random.normal(keys[1]))
    shear, shift = 0.12 * jax.random.normal(keys[2], (2, 2))
    mirror = jnp.where(jax.random.uniform(keys[3]) < 0.3, -1.0, 1.0)
    c, s = jnp.cos(turn), jnp.sin(turn)
    rotation = jnp.array([[c, -s], [s, c]])
    matrix = rotation @ jnp.array([[1.0, shear[0]], [shear[1], 1.0]]) / size
    bent = places - shift + 0.06 * _smooth(keys[4], 2)
    return (bent @ matrix.T) * jnp.array([mirror, 1.0])


def _shaken(key: jax.Array, made: Blobs) -> Blobs:
    """The object with parts moved, grown and coloured a little otherwise."""
    keys = jax.random.split(key, 4)
    noise = dict(zip(('centre', 'radius', 'colour', 'phase'), keys, strict=True))
    drawn = {n: jax.random.normal(k, made[n].shape) for n, k in noise.items()}
    return {
        **made,
        'centre': made['centre'] + 0.04 * drawn['centre'],
        'radius': made['radius'] * jnp.exp(0.1 * drawn['radius']),
        'colour': made['colour'] + 0.06 * drawn['colour'],
        'phase': made['phase'] + drawn['phase'],
    }


def _painted(canvas: jax.Array, places: jax.Array, blobs: Blobs) -> jax.Array:
    """A canvas [SIDE, SIDE, 3] with blobs on it, the last on top."""

    def paint(canvas: jax.Array, one: Any) -> Any:
        own = places - one['centre']
        c, s = jnp.cos(one['angle']), jnp.sin(one['angle'])
        root = jnp.sqrt(one['squash'])
        x = (own[..., 0] * c + own[..., 1] * s) / root
        y = (own[..., 1] * c - own[..., 0] * s) * root
        distance = jnp.sqrt(x * x + y * y + 1e-8)
        mask = jax.nn.sigmoid(
            (_border(x / distance, y / distance, one) - distance) / SOFT
        )
        colour = one['colour'] + one['contrast'] * _fill(own, distance, one)[..., None]
        return canvas + mask[..., None] * (colour - canvas), None

    painted: jax.Array = jax.lax.scan(paint, canvas, blobs)[0]
    return painted


def _border(cosine: jax.Array, sine: jax.Array, one: Any) -> jax.Array:
    """Distance of the border from the centre in a direction; waves by multiples of it."""
    c, s, border = cosine, sine, jnp.ones_like(cosine)
    for wave in range(WAVES):
        c, s = c * cosine - s * sine, s * cosine + c * sine
        border += one['waves'][wave, 0] * c + one['waves'][wave, 1] * s
    return one['radius'] * border


def _fill(own: jax.Array, distance: jax.Array, one: Any) -> jax.Array:
    """In [-1, 1.4]: flat, soft stripes, hard stripes, or darker towards the middle."""
    stripes = jnp.sin(own @ one['stripes'] + one['phase'])
    shade = 2 * jnp.clip(distance / one['radius'], 0, 1.2) - 1
    kinds = [one['fill'] < share for share in (0.35, 0.6, 0.75)]
    return jnp.select(kinds, [0.0 * stripes, stripes, jnp.sign(stripes)], shade)


def _lit(key: jax.Array, canvas: jax.Array, places: jax.Array) -> jax.Array:
    """In other light, contrast and colour; some grey, some negative; a little noise."""
    keys = jax.random.split(key, 8)
    normal, uniform = jax.random.normal, jax.random.uniform
    canvas = canvas * (1 + 0.25 * (places @ normal(keys[0], (2,)))[..., None])
    canvas = (canvas - 0.5) * jnp.exp(0.3 * normal(keys[1])) + 0.5
    canvas = canvas + 0.12 * normal(keys[2]) + 0.05 * normal(keys[3], (3,))
    grey = jnp.mean(canvas, axis=-1, keepdims=True)
    canvas = jnp.where(uniform(keys[4]) < 0.3, grey, canvas)
    canvas = jnp.where(uniform(keys[5]) < 0.1, 1 - canvas, canvas)
    return canvas + 0.03 * uniform(keys[6]) * normal(keys[7], canvas.shape)
