"""Secret randomness: every key of a run derives from its entropy and its fingerprint.

A key is SHA-256(entropy, fingerprint, purpose, step). On CPU the same run resumed repeats
the same bits, so a step that is computed again releases nothing new; elsewhere nothing of
it has been told before (training/session.py). A run with another config, data set, code or
machine gets unrelated keys. Entropy comes from the operating system and stays in the private
run folder until the release is made.
"""

import dataclasses
import hashlib
import hmac
import os
import pathlib
import secrets
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dpaf_jax.runtime.errors import UserError

ENTROPY_BYTES = 32


class Entropy(bytes):
    """Secret bytes that print as nothing, so that no log or traceback shows them."""

    def __repr__(self) -> str:
        return '<entropy>'

    __str__ = __repr__


@dataclasses.dataclass(frozen=True)
class RunKeys:
    """Derives the keys of one run.

    Args:
        entropy: at least 8 secret bytes.
        fingerprint: hexadecimal hash of everything that shapes the run.

    Raises:
        ValueError: the entropy is too short, or no bytes.

    Example:
        >>> keys = RunKeys(entropy=b'for this example', fingerprint='00')
        >>> noise = keys.noise('dpagg', 0)
        >>> bool(np.any(noise == keys.noise('dpagg', 1)))  # another step
        False
        >>> bool(np.any(noise == keys.noise('fake', 0)))  # another purpose
        False
        >>> keys  # shows no secret
        RunKeys(fingerprint='00')
    """

    entropy: bytes = dataclasses.field(repr=False)
    fingerprint: str

    def __post_init__(self) -> None:
        if not isinstance(self.entropy, bytes) or len(self.entropy) < 8:
            raise ValueError('entropy must be bytes, and at least 8 bytes')
        object.__setattr__(self, 'entropy', Entropy(self.entropy))

    def _digest(self, purpose: str, step: int) -> bytes:
        text = f'{self.fingerprint}/{purpose}/{step}'.encode()
        return hashlib.sha256(
            len(self.entropy).to_bytes(4) + self.entropy + text
        ).digest()

    def tag(self, private: bytes) -> str:
        """HMAC-SHA256 of a private value under the run's entropy, as hex.

        Equal values have equal tags.
        """
        return hmac.new(self.entropy, b'tag/' + private, hashlib.sha256).hexdigest()

    def noise(self, purpose: str, step: int) -> np.ndarray:
        """A ChaCha20 key for `noise.py`: [8] uint32, the whole digest."""
        return np.frombuffer(self._digest(f'noise/{purpose}', step), np.uint32)

    def public(self, purpose: str, step: int) -> np.ndarray:
        """Key data for what needs no secrecy (initial weights, latent draws): [4] uint32.

        For JAX's 'rbg' generator, which compiles quickly.
        """
        return np.frombuffer(self._digest(f'public/{purpose}', step)[:16], np.uint32)

    def rng(self, purpose: str, step: int) -> np.random.Generator:
        """A host generator (Philox, 128-bit key) for the sampler's coins."""
        key = np.frombuffer(self._digest(f'coins/{purpose}', step)[:16], np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def apart(self, part: str) -> 'RunKeys':
        """The keys of a part whose purposes have the same names as the run's own.

        But for `lasting`, which has no fingerprint in it.
        """
        text = f'{self.fingerprint}/{part}'.encode()
        return dataclasses.replace(self, fingerprint=hashlib.sha256(text).hexdigest())

    def lasting(self, purpose: str) -> np.random.Generator:
        """Secret coins that stay when a run goes on on other devices.

        For what a state remembers. A record that was dealt to another teacher half-way
        would be behind two of them, and each is charged for its own records alone.
        """
        same = dataclasses.replace(self, fingerprint='lasting')
        return same.rng(purpose, 0)


def read_or_create_entropy(path: pathlib.Path) -> Entropy:
    """Returns the run's entropy, drawn from the operating system on first use.

    The file is created with mode 0600 in a folder of mode 0700. Whoever calls it
    holds the run's lock: two at once would overwrite it.

    Raises:
        UserError: what is there is not of `ENTROPY_BYTES`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)  # also where it was there before
    if path.exists():
        path.chmod(0o600)  # also where it was copied or restored
        kept = Entropy(path.read_bytes())
        if len(kept) != ENTROPY_BYTES:
            problem = f'has {len(kept)} bytes, not {ENTROPY_BYTES}'
            raise UserError(str(path), problem, 'Restore it, or give a new workdir')
        return kept
    entropy = Entropy(secrets.token_bytes(ENTROPY_BYTES))
    temporary = path.with_suffix('.tmp')
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, 'wb') as file:
        file.write(entropy)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    return entropy


def public_key(key_data: Any) -> jax.Array:
    """The typed key of `RunKeys.public`'s data."""
    return jax.random.wrap_key_data(key_data, impl='rbg')


def record_keys(key_data: Any, index: jax.Array) -> jax.Array:
    """A key for each record of a step: for the coins that are its own.

    Guarantee: a record's key is a function of the step's key and of the record's index
    alone. Neither its slot, nor who else is there, nor the number of slots or devices moves
    it; so removing a record changes nobody else's coins. Threefry, since what 'rbg' draws
    under `vmap` depends on the whole batch.

    Args:
        key_data: uint32, of which two words are used: [4] of `RunKeys.public`, or a
            noise key's.
        index: [U] int32, places among all N records, empty ones counted.

    Returns:
        [U] typed keys, to be drawn from under `vmap`.
    """
    key = jax.random.wrap_key_data(key_data[:2], impl='threefry2x32')
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index)


def own_coins(draw: Callable[..., jax.Array], keys: jax.Array, *shape: int) -> Any:
    """[U, *shape]: each record's draw from its own key.

    Args:
        draw: jax.random.normal or the like: (key, shape) -> array.
        keys: [U], of `record_keys`.
        shape: of one record's draw.
    """
    return jax.vmap(lambda key: draw(key, shape))(keys)
