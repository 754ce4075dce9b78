"""What stands behind a config's colon, `mnist,1`: a source, epsilon, perhaps a protocol."""

import difflib
import importlib
import math
import os
from typing import NamedTuple

from ml_collections import ConfigDict

from configs import default, variants

# Names of configs, some with an argument behind a colon: `dpgen.py:celeba64:hair`.
DATA = (
    'digits',
    'mnist',
    'fashion_mnist',
    'svhn',
    'cifar10',
    'celeba32:gender',
    'celeba32:hair',
    'celeba64:gender',
    'celeba64:hair',
    'ffhq128',
    'lsun_bedroom',
)


BENCH = 'dpimagebench'  # the protocol of a benchmark, behind the source and epsilon
# Training records that it trains on; the others are its validation images. The numbers are
# those of 2019ChenGong/DPImageBench, data/dataset_loader.py.
BENCH_RECORDS = {'mnist': 55_000, 'fashion_mnist': 55_000}
# Of which 55 000 train classifiers; evaluation/evaluator.py there.
BENCH_SAMPLES = 60_000


def bench(config: ConfigDict, num_examples: int) -> ConfigDict:
    """DPImageBench's protocol: N, delta = 1 / (N ln N), its classifiers, 60 000 images."""
    config.data.subset = config.data.num_examples = num_examples
    config.privacy.delta = 1 / (num_examples * math.log(num_examples))
    config.samples.num = BENCH_SAMPLES
    config.evaluation.suite = BENCH
    return config


def num_samples(argument: str, usual: int) -> int:
    """Number of synthetic images: the protocol's, where the argument has one, or the usual."""
    return BENCH_SAMPLES if _parse(argument).protocol else usual


def meant(data: str) -> str:
    """Asks for the names of DATA that are near to `data`; tells all where none is."""
    names, asked = [name.partition(':')[0] for name in DATA], data.partition(':')[0]
    near = [asked] if asked in names else difflib.get_close_matches(asked, names)
    found = [each for each, name in zip(DATA, names, strict=True) if name in near]
    if found:
        return f'Did you mean {" or ".join(found)}?'
    return f'Choose one of {", ".join(DATA)}.'


def on(argument: str, method: str) -> ConfigDict:
    """A source's config with another method: what `dp_gan.py:mnist,1` stands for.

    Args:
        argument: a source, as `recommended.py` takes it, or table:/path to a CSV file or
            an npz archive, and epsilon. Left out, epsilon is 10 for images and 1 for a
            table. A table needs --config.data.columns with their public bounds; see
            data.label and data.num_classes, too.
        method: that runs; g_pate, pate_gan, dp_merf, dp_hp and pearl know tables.
    """
    config = _table(argument) if is_table(argument) else given(argument, 'one_shot')
    config.method = method
    return config


def is_table(argument: str) -> bool:
    """Whether the source is a table, of which image settings say nothing."""
    return argument.partition(':')[0] == 'table'


def _table(argument: str) -> ConfigDict:
    """G-PATE's table 1a: epsilon 1, of which 0.01 for the class distribution."""
    source, epsilon, _ = _parse(argument, 1.0)
    config = default.get_config()
    config.data.source = source
    config.data.num_examples = 0
    config.data.num_classes = 2
    config.data.image_size = 4  # not read
    config.data.noisy_prior = 0.01
    config.privacy.epsilon = epsilon
    config.samples.num = 10000
    return config


def is_digits(argument: str) -> bool:
    """Whether the source is the embedded digits, which are few and small."""
    return _parse(argument).source == 'digits'


def given(argument: str, variant: str) -> ConfigDict:
    """The config of a source, and after a comma epsilon (10 if it is left out).

    Args:
        argument: the source is one of DATA, such as digits or celeba64:hair, or as
            `data.source`: folder:/path, npz:/path. A last word may be BENCH:
            mnist,1,dpimagebench.
        variant: as for `variants.choose`.
    """
    source, epsilon, protocol = _parse(argument)
    if protocol and source not in BENCH_RECORDS:
        known = ' or '.join(BENCH_RECORDS)
        raise ValueError(
            f'{protocol} is a protocol of {known}, not of {source!r}. Name one of them; where '
            'it lies, say with --config.data.source.'
        )
    config = of(source, variant) if source in DATA else _own(source, variant)
    config.privacy.epsilon = epsilon
    return bench(config, BENCH_RECORDS[source]) if protocol else config


def _own(source: str, variant: str) -> ConfigDict:
    """Data of one's own: what is left open they decide, unless the command line says."""
    _check(source)
    config = variants.choose(default.get_config(), variant)
    config.data.source = source
    config.data.num_classes = config.data.image_size = config.data.channels = 0
    config.data.class_names = '?'
    config.networks.layers = ''
    config.samples.num = 0
    config.privacy.delta = 0.0
    return config


def _check(source: str) -> None:
    """Refuses what is neither in DATA nor a kind of source with its path."""
    name, comma, last = source.partition(',')
    if comma and name in DATA:
        raise ValueError(f'epsilon, the number behind {name} and a comma, is {last!r}.')
    if is_table(source):
        raise ValueError(
            f'source is {source!r}, and this config is of images. Take dp_merf.py:table:PATH, '
            'with --config.data.columns.'
        )
    kinds = {name.partition(':')[0] for name in DATA}
    if ':' not in source or source.partition(':')[0] in kinds:
        raise ValueError(
            f'source is {source!r}. {meant(source)} '
            'Give data of your own as folder:/path or npz:/path.'
        )
    path, comma, last = source.partition(':')[2].rpartition(',')
    if comma and os.path.exists(path) and not os.path.exists(f'{path},{last}'):
        raise ValueError(f'epsilon, the number behind {path} and a comma, is {last!r}.')


class _Asked(NamedTuple):
    source: str
    epsilon: float
    protocol: str


def _parse(argument: str, epsilon: float = 10.0) -> _Asked:
    before, _, protocol = argument.rpartition(',')
    is_path = os.path.exists(argument.partition(':')[2])  # one may have commas
    if protocol != BENCH or is_path:
        before, protocol = argument, ''
    source, _, last = before.rpartition(',')
    try:
        return _Asked(source, float(last), protocol)
    except ValueError:  # a path with a comma, or no epsilon
        return _Asked(before, epsilon, protocol)


def of(data: str, variant: str) -> ConfigDict:
    """A data set's config: celeba64:hair, canonical is `celeba64.py:hair,canonical`."""
    if data not in DATA:
        raise ValueError(f'data is {data!r}. {meant(data)}')
    name, _, argument = data.partition(':')
    module = importlib.import_module(f'configs.{name}')
    config: ConfigDict = module.get_config(','.join(filter(None, [argument, variant])))
    return config
