"""Which side of the split a record is on: a function of its own name."""

import numpy as np

from dpaf_jax.data.split import hash_split


def test_a_records_side_does_not_depend_on_the_others():
    names = [f'{i:06d}.jpg' for i in range(500)]
    side = dict(zip(names, hash_split(names.__getitem__, 500, 0.3), strict=True))
    fewer = names[100:400][::-1]
    again = hash_split(fewer.__getitem__, 300, 0.3)
    assert [side[name] for name in fewer] == list(again)


def test_the_share_is_the_fraction_asked_for():
    share = np.mean(hash_split(str, 20_000, 0.2))
    assert abs(share - 0.2) < 0.012  # four standard deviations


def test_a_larger_fraction_only_adds():
    small, large = (hash_split(str, 2000, f) for f in (0.1, 0.3))
    assert not np.any(small & ~large)


def test_it_is_the_same_on_every_machine():
    found = np.flatnonzero(hash_split(str, 30, 0.2))
    assert found.tolist() == [18, 21, 25]
