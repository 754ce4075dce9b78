"""ChaCha20 against the vectors of RFC 8439, and what noise needs of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.privacy import chacha

pytestmark = pytest.mark.usefixtures('optimised')

KEY = np.frombuffer(bytes(range(32)), '<u4')
blocks = jax.jit(chacha.blocks, static_argnums=2)


def words(text):
    return np.frombuffer(bytes.fromhex(text), '<u4')


def test_a_quarter_round_is_the_one_of_the_rfc():  # section 2.1.1
    four = map(jnp.uint32, (0x11111111, 0x01020304, 0x9B8D6F43, 0x01234567))
    made = chacha._quarter_round(*four)
    assert list(map(int, made)) == [0xEA2A92F4, 0xCB1CF8CE, 0x4581472E, 0x5881C4BB]


def test_a_block_is_the_one_of_the_rfc():  # section 2.3.2
    nonce = tuple(map(int, words('000000090000004a00000000')))
    made = blocks(KEY, np.uint32([1]), nonce)[:, 0]
    assert np.array_equal(
        made,
        words(
            '10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e'
            'd2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e'
        ),
    )


@pytest.mark.parametrize(  # appendix A.1, vectors 1, 2 and 3
    ('key', 'counter', 'first'),
    [
        (bytes(32), 0, '76b8e0ada0f13d90405d6ae55386bd28'),
        (bytes(32), 1, '9f07e7be5551387a98ba977c732d080d'),
        (bytes(31) + b'\1', 1, '3aeb5224ecf849929b9d828db1ced4dd'),
    ],
)
def test_blocks_of_the_appendix(key, counter, first):
    made = blocks(np.frombuffer(key, '<u4'), np.uint32([counter]), (0, 0, 0))
    assert np.array_equal(made[:4, 0], words(first))


def test_a_block_depends_on_its_own_counter_alone():
    every = blocks(KEY, np.arange(64, dtype=np.uint32), (0, 0, 0))
    for i in (0, 5, 63):
        alone = blocks(KEY, np.uint32([i]), (0, 0, 0))
        assert np.array_equal(alone[:, 0], every[:, i])
    assert len(np.unique(every)) == every.size


def test_derived_keys_are_no_words_of_noise_and_differ():
    noise = blocks(KEY, np.arange(1000, dtype=np.uint32), (0, 0, 0))
    keys = [np.asarray(chacha.derived(KEY, i)) for i in range(20)]
    assert all(key.shape == (8,) and key.dtype == np.uint32 for key in keys)
    assert len(np.unique(keys)) == 160
    assert not set(np.ravel(keys).tolist()) & set(np.ravel(noise).tolist())
