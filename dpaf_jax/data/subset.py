"""A drawn part of the training records, where a benchmark keeps the rest for validation.

Guarantee: which records take part goes by how many there are and by their places, never by
what they hold. Neighbours, equal but for one record that is emptied in its place, stay so.
A record that takes no part is not decoded.
"""

import dataclasses

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.data.checks import splits
from dpaf_jax.data.sources.base import Source, only
from dpaf_jax.runtime.errors import UserError

SEED = 0  # DPImageBench's


def drawn(source: Source, config: DataConfig) -> Source:
    """The source with `config.subset` of its training records, and all test records.

    They are those of 2019ChenGong/DPImageBench (`load_sensitive_data` in
    data/dataset_loader.py), which has PyTorch's `random_split` draw them after
    `torch.manual_seed(0)`: of records in the same order the very same ones.

    Args:
        source: listed, not decoded.
        config: whose `subset` is 0 for a source as it is.

    Raises:
        UserError: there are fewer training records than that.
    """
    if not config.subset:
        return source
    is_test = splits(source, config)
    train = np.flatnonzero(~is_test)
    if config.subset > len(train):
        raise UserError(
            'config.data.subset',
            f'is {config.subset}, but {source.where} has fewer training records',
            'Give the whole data set, or a smaller number, or 0 to take all',
        )
    kept = is_test.copy()
    kept[train[permutation(len(train), SEED)[: config.subset]]] = True
    return dataclasses.replace(
        only(source, kept),
        is_test=None if source.is_test is None else is_test[kept],
        notes=(*source.notes, f'of the training records {config.subset} take part'),
    )


def permutation(number: int, seed: int) -> np.ndarray:
    """What PyTorch's `torch.manual_seed(seed); torch.randperm(number)` gives on a CPU.

    A shuffle whose draws are 32-bit numbers of the Mersenne twister, modulo what is left.

    Args:
        number: below 2 ** 32 / 20; above it PyTorch draws otherwise.
        seed: in [0, 2 ** 32).

    Returns:
        [number] integers, those below `number`.
    """
    twister = np.random.RandomState(seed)
    draws = twister.randint(2**32, size=number, dtype=np.uint32).tolist()
    order = list(range(number))
    for i in range(number - 1):
        j = i + draws[i] % (number - i)
        order[i], order[j] = order[j], order[i]
    return np.array(order, np.int64)
