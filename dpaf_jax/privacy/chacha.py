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
COLUMNS = (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)
DIAGONALS = (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)
Words = tuple[jax.Array, ...]


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
    start = tuple(jnp.broadcast_to(word, counters.shape) for word in words)
    # A loop, so that it compiles quickly.
    mixed = jax.lax.fori_loop(0, ROUNDS // 2, lambda _, x: _double_round(x), start)
    return jnp.stack([a + b for a, b in zip(mixed, start, strict=True)])


def derived(key_data: jax.Array, number: int | jax.Array) -> jax.Array:
    """A key of its own for each number, unrelated to all else that a key makes."""
    counter = jnp.asarray(number, jnp.uint32)[None]
    return blocks(key_data, counter, nonce=(1, 0, 0))[:KEY_WORDS, 0]


def _double_round(words: Words) -> Words:
    mixed = list(words)
    for four in (*COLUMNS, *DIAGONALS):
        quarter = _quarter_round(*(mixed[i] for i in four))
        for i, word in zip(four, quarter, strict=True):
            mixed[i] = word
    return tuple(mixed)


def _quarter_round(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> Words:
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
