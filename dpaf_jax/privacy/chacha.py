"""ChaCha20: random words from a secret key and a counter, of which noise is made.

The block function of RFC 8439, with its 20 rounds and 256-bit keys, so that whoever sees
noise and has not 2^128 steps to spend learns neither its key nor its other words. Words
depend on key, nonce and counter alone: any device can make any of them.
"""

import jax
import jax.numpy as jnp
import numpy as np

KEY_WORDS = 8
BLOCK_WORDS = 16
ROUNDS = 20
CONSTANTS = np.frombuffer(b'expand 32-byte k', '<u4')
Rows = tuple[jax.Array, ...]  # four of a block's matrix, [4, n] uint32 each


def blocks(
    key_data: jax.Array, counters: jax.Array, nonce: tuple[int, int, int] = (0, 0, 0)
) -> jax.Array:
    """[16, n] uint32: a block of words for each counter.

    Args:
        key_data: [8] uint32.
        counters: [n] uint32.
        nonce: three words; what is made of one key for two purposes differs in them.
    """
    words = [*map(jnp.uint32, CONSTANTS), *key_data, counters, *map(jnp.uint32, nonce)]
    start = jnp.stack([jnp.broadcast_to(word, counters.shape) for word in words])
    start = start.reshape(
        4, 4, -1
    )  # the matrix of RFC 8439, section 2.3, for each counter
    # A loop, so that it compiles quickly.
    rows = jax.lax.fori_loop(0, ROUNDS // 2, _double_round, tuple(start))
    return (jnp.stack(rows) + start).reshape(BLOCK_WORDS, -1)


def derived(key_data: jax.Array, number: int | jax.Array) -> jax.Array:
    """A key of its own for each number, unrelated to all else that a key makes."""
    counter = jnp.asarray(number, jnp.uint32)[None]
    return blocks(key_data, counter, nonce=(1, 0, 0))[:KEY_WORDS, 0]


def _double_round(_: jax.Array, rows: Rows) -> Rows:
    """All four columns at once, then all four diagonals, turned into columns and back."""
    a, b, c, d = _quarter_round(*rows)
    b, c, d = jnp.roll(b, -1, 0), jnp.roll(c, -2, 0), jnp.roll(d, -3, 0)
    a, b, c, d = _quarter_round(a, b, c, d)
    return a, jnp.roll(b, 1, 0), jnp.roll(c, 2, 0), jnp.roll(d, 3, 0)


def _quarter_round(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> Rows:
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


def _rotated(word: jax.Array, bits: int) -> jax.Array:
    return word << bits | word >> (32 - bits)
