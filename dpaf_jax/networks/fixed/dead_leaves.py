"""Pictures of made-up objects, in any pose and light, on any ground.

An object is one to six blobs on top of each other, each with a border that waves and a fill
that is flat, striped or shaded. They lie on a plain, a clouded or a busy ground of more such
blobs: dead leaves (Lee, Mumford and Huang 2001). No photograph has a part in them.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

PARTS, GROUND = 6, 6  # blobs of an object at most, and of a busy ground
WAVES = 4  # of a border, around the blob
SOFT = 0.035  # of an edge, in units of half the side
# Numbers that a pair of pictures takes, but for its grain.
NORMALS, UNIFORMS = 576, 208

Blobs = dict[str, jax.Array]


class Coins:
    """A picture's random numbers, drawn at once: each draw of its own compiles for long."""

    def __init__(self, key: jax.Array):
        normals, uniforms, self.grain = jax.random.split(key, 3)
        self._normals = jax.random.normal(normals, (NORMALS,))
        self._uniforms = jax.random.uniform(uniforms, (UNIFORMS,))

    def normal(self, *shape: int) -> jax.Array:
        """[*shape] that nobody has had before."""
        number = math.prod(shape)
        mine, self._normals = jnp.split(self._normals, [number])
        return mine.reshape(shape)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> jax.Array:
        """[*shape] in [low, high)."""
        number = math.prod(shape)
        mine, self._uniforms = jnp.split(self._uniforms, [number])
        return low + (high - low) * mine.reshape(shape)

    def log_uniform(self, *shape: int, low: float, high: float) -> jax.Array:
        """[*shape], whose logarithms are uniform."""
        return jnp.exp(self.uniform(*shape, low=math.log(low), high=math.log(high)))


def pictures(key: jax.Array, number: int, side: int, channels: int) -> jax.Array:
    """[number, side, side, channels] float32 in [-1, 1]: one picture of each object.

    Args:
        key: public coins.
        number: of pictures.
        side: pixels.
        channels: 1 or 3.
    """
    made = jax.lax.map(lambda k: _pair(k, side)[0], jax.random.split(key, number))
    return jnp.mean(made, axis=-1, keepdims=True) if channels == 1 else made


def pairs(key: jax.Array, number: int, side: int) -> jax.Array:
    """[number, 2, side, side, 3] float32 in [-1, 1]: two pictures of each object.

    They show it in another pose and light, on another ground.
    """
    return jax.vmap(lambda k: _pair(k, side))(jax.random.split(key, number))


def _pair(key: jax.Array, side: int) -> jax.Array:
    coins, places = Coins(key), _places(side)
    made = _alike(coins, _blobs(coins, PARTS, spread=0.28, radii=(0.12, 0.55)))
    made['radius'] = jnp.sort(made['radius'])[::-1]  # small ones on large ones
    parts = 1 + jnp.floor(PARTS * coins.uniform())
    made['radius'] = jnp.where(jnp.arange(PARTS) < parts, made['radius'], -1.0)
    grains = jax.random.normal(coins.grain, (2, side, side, 3))
    return jnp.stack([_view(coins, made, places, grain) for grain in grains])


def _blobs(
    coins: Coins, number: int, spread: float, radii: tuple[float, float]
) -> Blobs:
    """Random ones; lengths in units of half the side of a picture."""
    fine = jnp.sqrt(jnp.arange(1, WAVES + 1))[:, None]
    waves = 0.22 * coins.normal(number, WAVES, 2) / fine
    fast = coins.log_uniform(number, 1, low=2, high=28)
    return {
        'centre': spread * coins.normal(number, 2),
        'radius': coins.log_uniform(number, low=radii[0], high=radii[1]),
        'squash': jnp.exp(0.6 * jnp.abs(coins.normal(number))),
        'angle': coins.uniform(number, high=math.pi),
        'waves': waves * (coins.uniform(number, 1, 1) < 0.6),
        'colour': coins.uniform(number, 3),
        'contrast': 0.25 * coins.normal(number, 3),
        'stripes': coins.normal(number, 2) * fast,
        'phase': coins.uniform(number, high=2 * math.pi),
        'fill': coins.uniform(number),
    }


def _alike(coins: Coins, blobs: Blobs) -> Blobs:
    """The same in colours about a common one, more or less grey."""
    grey = coins.uniform(len(blobs['radius']), 1)
    strength = coins.uniform() ** 1.5
    hue = 0.2 * coins.normal(3)
    own = blobs['colour'] - jnp.mean(blobs['colour'], axis=1, keepdims=True)
    return {**blobs, 'colour': jnp.clip(grey + strength * (0.7 * own + hue), 0, 1)}


def _view(coins: Coins, made: Blobs, places: jax.Array, grain: jax.Array) -> jax.Array:
    """One picture of an object."""
    canvas = _ground(coins, places)
    canvas = _painted(canvas, _posed(coins, places), _shaken(coins, made))
    return 2 * jnp.clip(_lit(coins, canvas, places, grain), 0, 1) - 1


def _places(side: int) -> jax.Array:
    """[side, side, 2] of pixels, in [-1, 1]."""
    along = (jnp.arange(side) + 0.5) / side * 2 - 1
    return jnp.stack(jnp.meshgrid(along, along), -1)


def _smooth(coins: Coins, places: jax.Array, channels: int) -> jax.Array:
    """[side, side, channels] that waves a few times across a picture."""
    coarse = coins.normal(4, 4, channels)
    return jax.image.resize(coarse, (*places.shape[:2], channels), 'cubic')


def _ground(coins: Coins, places: jax.Array) -> jax.Array:
    """Black or white, of one colour, clouded, or busy."""
    kind = coins.uniform()
    black_or_white = jnp.round(coins.uniform()) * jnp.ones(3)
    colour = jnp.where(kind < 0.25, black_or_white, coins.uniform(3))
    clouds = jnp.where(kind < 0.5, 0.0, 0.15) * _smooth(coins, places, 3)
    canvas = colour + clouds
    others = _alike(coins, _blobs(coins, GROUND, spread=0.8, radii=(0.1, 0.6)))
    return jnp.where(kind > 0.7, _painted(canvas, places, others), canvas)


def _posed(coins: Coins, places: jax.Array) -> jax.Array:
    """Places in the object's frame: turned, shifted, sheared, mirrored and bent a little."""
    turn = 0.25 * coins.normal()
    size = jnp.exp(0.18 * coins.normal())
    shear, shift = 0.12 * coins.normal(2, 2)
    mirror = jnp.where(coins.uniform() < 0.3, -1.0, 1.0)
    c, s = jnp.cos(turn), jnp.sin(turn)
    rotation = jnp.array([[c, -s], [s, c]])
    matrix = rotation @ jnp.array([[1.0, shear[0]], [shear[1], 1.0]]) / size
    bent = places - shift + 0.06 * _smooth(coins, places, 2)
    return (bent @ matrix.T) * jnp.array([mirror, 1.0])


def _shaken(coins: Coins, made: Blobs) -> Blobs:
    """The object with parts moved, grown and coloured a little otherwise."""
    names = 'centre', 'radius', 'colour', 'phase'
    drawn = {name: coins.normal(*made[name].shape) for name in names}
    return {
        **made,
        'centre': made['centre'] + 0.04 * drawn['centre'],
        'radius': made['radius'] * jnp.exp(0.1 * drawn['radius']),
        'colour': made['colour'] + 0.06 * drawn['colour'],
        'phase': made['phase'] + drawn['phase'],
    }


def _painted(canvas: jax.Array, places: jax.Array, blobs: Blobs) -> jax.Array:
    """A canvas [side, side, 3] with blobs on it, the last on top."""

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


def _lit(
    coins: Coins, canvas: jax.Array, places: jax.Array, grain: jax.Array
) -> jax.Array:
    """In other light, contrast and colour; some grey, some negative; a little grain."""
    canvas = canvas * (1 + 0.25 * (places @ coins.normal(2))[..., None])
    canvas = (canvas - 0.5) * jnp.exp(0.3 * coins.normal()) + 0.5
    canvas = canvas + 0.12 * coins.normal() + 0.05 * coins.normal(3)
    grey = jnp.mean(canvas, axis=-1, keepdims=True)
    canvas = jnp.where(coins.uniform() < 0.3, grey, canvas)
    canvas = jnp.where(coins.uniform() < 0.1, 1 - canvas, canvas)
    return canvas + 0.03 * coins.uniform() * grain
