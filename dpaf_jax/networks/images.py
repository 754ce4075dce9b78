"""Images as numbers: their range, and smaller copies of them."""

import jax
import jax.numpy as jnp
import numpy as np

# Rows: brightness, red against blue, green against both.
_OPPONENT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]], np.float32)
_OPPONENT /= np.linalg.norm(_OPPONENT, axis=1, keepdims=True)

MAX_SIDE = 32  # larger images are reduced to this: the weights would be huge


def to_float(images: jax.Array) -> jax.Array:
    """uint8 [..., H, W, C], or a table's float32 in [0, 1], to float32 in [-1, 1]."""
    if images.dtype != jnp.uint8:
        return images * 2 - 1
    return images.astype(jnp.float32) / 127.5 - 1


def to_uint8(images: jax.Array) -> jax.Array:
    """float32 in [-1, 1] to uint8."""
    return jnp.round((jnp.clip(images, -1, 1) + 1) * 127.5).astype(jnp.uint8)


def reduction(side: int) -> int:
    """By how much a side is divided, so that it is at most MAX_SIDE."""
    return -(-side // MAX_SIDE)


def averaged(images: jax.Array, factor: int) -> jax.Array:
    """Means over squares: [B, H, W, C] to [B, H / factor, W / factor, C], rounded down."""
    batch, side, _, channels = images.shape
    short = side // factor
    cut = images[:, : short * factor, : short * factor]
    squares = cut.reshape(batch, short, factor, short, factor, channels)
    return jnp.mean(squares, axis=(2, 4))


def reduced(images: jax.Array) -> jax.Array:
    """Means over squares, so that the side is at most MAX_SIDE; a table's rows as they are."""
    factor = reduction(images.shape[1])
    return images if factor == 1 else averaged(images, factor)


def mirrored(images: jax.Array) -> jax.Array:
    """[..., H, W, C] images from left to right."""
    return images[..., ::-1, :]


def opponent(images: jax.Array) -> jax.Array:
    """[..., 3] colours as brightness and two hues, by a rotation; [..., 1] as they are."""
    return images @ _OPPONENT.T if images.shape[-1] == 3 else images
