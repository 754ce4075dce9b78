"""Contracts of the keys: secret, repeatable, each for one purpose and one step."""

import itertools
import stat
import traceback

import jax
import numpy as np
import pytest
import tiny

from dpaf_jax.privacy.keys import RunKeys, public_key, read_or_create_entropy
from dpaf_jax.runtime.errors import UserError

PURPOSES = ('conv1', 'conv2', 'dpagg', 'fake', 'fake tick')


def as_ints(key):
    return tuple(np.asarray(key).tolist())


def test_no_two_noise_keys_are_equal():
    keys = tiny.keys()
    made = [as_ints(keys.noise(p, t)) for p in PURPOSES for t in range(2000)]
    assert len(set(made)) == len(made)


def test_noise_keys_have_256_bits_and_use_them():
    bits = np.array([tiny.keys().noise('dpagg', t) for t in range(500)])
    assert bits.shape == (500, 8)
    assert bits.dtype == np.uint32
    for word in bits.T.copy():
        ones = np.unpackbits(word.view(np.uint8)).reshape(500, 32).mean(axis=0)
        assert np.all(np.abs(ones - 0.5) < 0.12)


@pytest.mark.parametrize(
    'other',
    [
        {'entropy': bytes(32)},
        {'entropy': tiny.ENTROPY[:-1]},
        {'fingerprint': 'e' * 64},
    ],
)
def test_entropy_and_fingerprint_change_every_key(other):
    one, two = tiny.keys(), tiny.keys(**other)
    for make in ('noise', 'public'):
        a, b = (np.ravel(getattr(k, make)('dpagg', 3)) for k in (one, two))
        assert not set(a.tolist()) & set(b.tolist())
    draws = [k.rng('dpagg', 3).integers(2**60) for k in (one, two)]
    assert draws[0] != draws[1]


def test_lasting_coins_are_the_entropys_and_the_purposes_alone():
    def drawn(keys, purpose='places'):
        return keys.lasting(purpose).integers(2**60)

    here, moved = tiny.keys(), tiny.keys(fingerprint='e' * 64)
    assert drawn(here) == drawn(here) == drawn(moved)
    assert drawn(here) != drawn(here, 'partition')
    assert drawn(here) != drawn(tiny.keys(bytes(32)))
    assert drawn(here) != here.rng('places', 0).integers(2**60)


def test_entropy_cannot_slide_into_the_fingerprint():
    one = RunKeys(b'12345678' + b'ab', 'cd')
    two = RunKeys(b'12345678', 'abcd')
    assert as_ints(one.noise('x', 0)) != as_ints(two.noise('x', 0))


def test_noise_coins_and_public_keys_of_one_name_are_unrelated():
    keys = tiny.keys()
    words = [
        np.ravel(keys.noise('dpagg', 0)),
        np.ravel(keys.public('dpagg', 0)),
        keys.rng('dpagg', 0).bit_generator.state['state']['key'],
    ]
    for a, b in itertools.combinations(words, 2):
        assert not set(np.asarray(a).view(np.uint32).tolist()) & set(
            np.asarray(b).view(np.uint32).tolist()
        )


def test_the_same_run_repeats_its_keys():
    one, two = tiny.keys(), tiny.keys()
    assert as_ints(one.noise('conv1', 9)) == as_ints(two.noise('conv1', 9))
    assert as_ints(one.public('conv1', 9)) == as_ints(two.public('conv1', 9))
    assert one.rng('conv1', 9).random() == two.rng('conv1', 9).random()


def test_public_keys_are_keys_for_the_fast_generator():
    data = tiny.keys().public('init gan', 0)
    assert data.shape == (4,)
    assert np.isfinite(jax.random.uniform(public_key(data)))


@pytest.mark.parametrize('entropy', [b'1234567', 'no bytes at all'])
def test_short_entropy_and_text_are_refused(entropy):
    with pytest.raises(ValueError, match='8 bytes'):
        RunKeys(entropy, 'f')


def test_entropy_stays_out_of_what_is_printed():
    assert 'entropy' not in repr(tiny.keys())
    assert repr(tiny.ENTROPY)[2:-1] not in repr(tiny.keys())


def test_a_traceback_with_local_variables_shows_no_entropy(tmp_path):
    entropy = read_or_create_entropy(tmp_path / 'private' / 'entropy')
    keys = tiny.keys(entropy)
    try:
        keys.noise('dpagg', [].index(0))
    except ValueError as error:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    text = ''.join(shown.format()) + f'{entropy} {entropy!r} {keys} {(entropy,)}'
    assert '<entropy>' in text and 'keys = RunKeys' in text
    assert bytes.__repr__(entropy) not in text and entropy.hex() not in text


@pytest.mark.parametrize('number', [0, 8, 31, 33])
def test_entropy_of_another_length_is_refused(tmp_path, number):
    path = tmp_path / 'entropy'
    path.write_bytes(bytes(number))
    with pytest.raises(UserError, match=f'entropy: has {number} bytes, not 32'):
        read_or_create_entropy(path)


def test_rights_that_are_too_wide_are_taken_back(tmp_path):
    path = tmp_path / 'private' / 'entropy'
    path.parent.mkdir(mode=0o755)
    path.write_bytes(bytes(32))
    path.chmod(0o644)
    read_or_create_entropy(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_entropy_is_drawn_once_for_its_owner_alone(tmp_path):
    path = tmp_path / 'private' / 'entropy'
    first = read_or_create_entropy(path)
    assert len(first) == 32
    assert read_or_create_entropy(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_or_create_entropy(tmp_path / 'other') != first


def test_an_interrupted_write_of_entropy_is_not_taken_for_it(tmp_path):
    path = tmp_path / 'entropy'
    path.with_suffix('.tmp').write_bytes(b'half')
    assert len(read_or_create_entropy(path)) == 32
