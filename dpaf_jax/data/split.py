"""The deterministic test split of a source that has none."""

import hashlib
from collections.abc import Callable

import numpy as np

# Keeps this hash apart from any other use of the same names.
_PERSON = b'dpaf_jax split'


def hash_split(
    record_id: Callable[[int], str], num_records: int, test_fraction: float
) -> np.ndarray:
    """Assigns each record to the training or the test split by a hash of its id.

    One record's side is a function of its own id alone. A shuffle, or 'every fifth
    file', would let a record that comes or goes move others between the splits: then
    one person would change more than one training record, which is not what the
    guarantee speaks of. A larger fraction only adds to the test split.

    Args:
        record_id: index to the record's stable id.
        num_records: how many there are.
        test_fraction: the expected share of the test split, in [0, 1).

    Returns:
        [num_records] bool, True for the test split.
    """
    limit = int(test_fraction * 2**64)
    sides = (_position(record_id(i)) < limit for i in range(num_records))
    return np.fromiter(sides, dtype=bool, count=num_records)


def _position(record_id: str) -> int:
    name = record_id.encode('utf-8', 'surrogateescape')
    digest = hashlib.blake2b(name, digest_size=8, person=_PERSON).digest()
    return int.from_bytes(digest, 'big')
