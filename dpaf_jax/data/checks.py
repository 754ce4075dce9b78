"""What is checked before the first image is decoded.

A message names the file, never a person's label or the size of a class.
"""

from collections.abc import Sequence

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.data.manifest import check_num_examples
from dpaf_jax.data.sources.base import Source
from dpaf_jax.data.split import hash_split
from dpaf_jax.runtime.errors import UserError


def splits(source: Source, config: DataConfig) -> np.ndarray:
    """The source's own test split, or else a hash split by `test_fraction`.

    Returns:
        [n] bool, True for the test split; nowhere for a fraction of 0.
    """
    if source.is_test is not None:
        return source.is_test
    return hash_split(source.record_id, len(source.labels), config.test_fraction)


def check_records(source: Source, is_test: np.ndarray, config: DataConfig) -> None:
    """Checks the labels and the splits against the config.

    Args:
        source: listed, not decoded.
        is_test: [n] bool.
        config: with `num_classes` and, if it is known, `num_examples`.

    Raises:
        UserError: a number of classes other than the config's, a label outside it,
            an empty split, a class without training images, too small an N.
    """
    check_num_classes(source.where, len(source.class_names), config)
    check_order(source.where, source.class_names, config)
    outside = (source.labels < 0) | (source.labels >= config.num_classes)
    if (outside & source.is_present).any():
        name = source.record_id(int(np.argmax(outside)))
        raise UserError(
            source.where,
            f'the label of {name} is outside 0 .. {config.num_classes - 1}',
            'Correct the label, or config.data.num_classes',
        )
    check_sides(source, is_test, source.class_names, config)
    check_num_examples(config, int(np.sum(~is_test)))


def check_num_classes(where: str, number: int, config: DataConfig) -> None:
    """Refuses a stated number of classes that is not the source's; UserError."""
    if number != config.num_classes:
        raise UserError(
            'config.data.num_classes',
            f'is {config.num_classes}, but {where} has {number} classes',
            f'Set it to {number}, or correct the data',
        )


def check_order(where: str, names: Sequence[str], config: DataConfig) -> None:
    """Refuses the source's own names in another order, which would swap them; UserError."""
    if config.names != tuple(names) and sorted(config.names) == sorted(names):
        raise UserError(
            'config.data.class_names',
            f'is {config.class_names!r}, but {where} has these classes in another order',
            f'Set it to {"/".join(names)!r}',
        )


def check_sides(
    source: Source, is_test: np.ndarray, names: Sequence[str], config: DataConfig
) -> None:
    """Refuses a class without training images, and an empty test split that is asked for.

    Args:
        source: listed, not decoded.
        is_test: [n] bool.
        names: of all classes, by label.
        config: whose `test_fraction` may be 0.

    Raises:
        UserError: naming the class, or the source.
    """
    present = np.unique(source.labels[~is_test & source.is_present])
    missing = np.setdiff1d(np.arange(len(names)), present)
    if len(missing) > 0:
        label = int(missing[0])
        raise UserError(
            source.where,
            f'class {label} ({names[label]}) has no training images',
            'Add images of it, or leave the class out; labels that are numbers go from 0 '
            'to K - 1',
        )
    if config.test_fraction == 0 and source.is_test is None:
        return  # trained on everything, tested on nothing
    if not (is_test & source.is_present).any():
        remedy = 'Raise config.data.test_fraction'
        if source.is_test is not None:  # its own, or that of its groups
            remedy = 'Add some'
            if config.group:
                remedy = 'Add some, or raise config.data.test_fraction'
        raise UserError(source.where, 'has no test images', remedy)
