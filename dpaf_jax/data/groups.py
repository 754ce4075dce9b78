"""Pictures that belong together, such as all of one person: one of each group takes part.

Guarantee: what is proven of one record then holds for a whole group. Which picture stands for
a group, and on which side of the split, is a function of the group's own pictures. So a group
that comes or goes with all its pictures changes one record of the training split, no other.

More than one picture of a group would gain little. Noise would have to grow with their number,
as fast as what they add to a sum.
"""

import dataclasses
import hashlib
import re

import numpy as np

from dpaf_jax.config import DataConfig, check_group
from dpaf_jax.data.sources.base import Source, only
from dpaf_jax.data.split import hash_split
from dpaf_jax.runtime.errors import UserError

OTHER_COLUMNS = 'file', 'label', 'split'  # of a labels.csv
# Keeps this hash apart from any other use of the same names.
_PERSON = b'dpaf_jax group'


def one_of_each(source: Source, config: DataConfig) -> Source:
    """The source with one training picture of each group, and whole groups on one side.

    Where the source has no test split, `test_fraction` of the groups go there by a hash of
    their names. A test picture is in no mechanism: there all of a group remain.

    Args:
        source: listed, not decoded.
        config: its `group` is '', for a source as it is; or a column that the source has read;
            or a regular expression with parentheses around what names the group in a
            record's id.

    Raises:
        UserError: a record without a group; a group on both sides of the source's own split.
    """
    if not config.group:
        return source
    names = _groups(source, config)
    is_test, known = source.is_test, len(names)
    if is_test is None and config.test_fraction:
        is_test = hash_split(names.__getitem__, known, config.test_fraction)
    on_test = np.zeros(known, bool) if is_test is None else is_test
    _check_sides(names, on_test, source)
    kept = on_test.copy()
    kept[_chosen(names, source, ~on_test)] = True
    left_out = known - int(kept.sum())
    number = len({name for name, test in zip(names, on_test, strict=True) if not test})
    note = (
        f'{number} groups to train on, one picture of each: '
        f'{left_out} pictures take no part'
    )
    return dataclasses.replace(
        only(source, kept),
        is_test=None if is_test is None else is_test[kept],
        notes=(*source.notes, note),
    )


def _groups(source: Source, config: DataConfig) -> list[str]:
    if config.group in OTHER_COLUMNS:
        problem = f'is {config.group!r}, the column of something else'
        remedy = 'Name the column that says whose picture it is'
        raise UserError('config.data.group', problem, remedy)
    if source.groups is not None:
        return list(source.groups)
    if '(' not in config.group:
        problem = f'is {config.group!r}, a column, which {source.where} has not'
        remedy = 'Only a labels.csv has columns; elsewhere give a pattern with ( )'
        raise UserError('config.data.group', problem, remedy)
    check_group(config)
    pattern, names = re.compile(config.group), []
    for i in range(len(source.labels)):
        found = pattern.search(source.record_id(i))
        if not found or not found[1]:
            problem = f'names no group in {source.record_id(i)!r}'
            remedy = 'Give a pattern that finds one in every name'
            raise UserError(f'config.data.group = {config.group!r}', problem, remedy)
        names.append(found[1])
    return names


def _check_sides(names: list[str], is_test: np.ndarray, source: Source) -> None:
    train, test = (
        {name for name, side in zip(names, is_test, strict=True) if side == which}
        for which in (False, True)
    )
    if train & test:  # whose names and number are private
        problem = 'has pictures of one group in both splits'
        remedy = 'Put each group into one of them, or leave the split to a hash'
        raise UserError(source.where, problem, remedy)


def _chosen(names: list[str], source: Source, taken: np.ndarray) -> list[int]:
    """Of each group a picture that a hash of its own id picks, an empty record last."""
    best: dict[str, tuple[bool, bytes, int]] = {}
    present = source.is_present
    for i in np.flatnonzero(taken).tolist():
        rank = (not present[i], _hash(source.record_id(i)), i)
        if names[i] not in best or rank < best[names[i]]:
            best[names[i]] = rank
    return [i for _, _, i in best.values()]


def _hash(record_id: str) -> bytes:
    name = record_id.encode('utf-8', 'surrogateescape')
    return hashlib.blake2b(name, digest_size=16, person=_PERSON).digest()
