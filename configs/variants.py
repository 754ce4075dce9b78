"""Named settings that several configs share, as deltas of the default."""

import difflib
import importlib
import math
import os
from typing import NamedTuple

from ml_collections import ConfigDict

from configs import default


def one_shot(config: ConfigDict) -> ConfigDict:
    """DPAGG once per class over all images; the generator matches the aggregates.

    DPAF with class-pure batches, q = 1 and one step: all of epsilon buys one release of
    a class x feature table, and everything after it is post-processing.
    """
    config.networks.label_injection = 'none'
    dpaf = config.dpaf
    dpaf.batches = 'class_pure'
    dpaf.batch_size = 0
    dpaf.epochs = 1.0
    dpaf.n_critic = 1
    dpaf.taps = 'count,fourier,conv1,conv2'
    dpaf.classifier.private = 'none'
    dpaf.conv2.gradient = 'none'
    generator = dpaf.generator
    generator.loss_single = 0.0
    generator.loss_match = 1.0
    generator.batch_size = 200
    generator.learning_rate = 2e-3
    generator.schedule = 'cosine'
    generator.ema_decay = 0.99
    return config


def small_batches(config: ConfigDict) -> ConfigDict:
    """Algorithm 1 on class-pure batches: the choices with which it learns.

    Each is compared with the printed one in docs/explanation/algorithm.md.
    """
    config.networks.label_injection = 'none'
    config.networks.layers = 'C1-C1-x'
    config.networks.generator = 'fine'
    dpaf = config.dpaf
    dpaf.batches = 'class_pure'
    dpaf.batch_size = 240
    dpaf.epochs = 0.0  # 500 steps, whatever N is
    dpaf.asymmetry = 2  # nothing but the length of a compiled window
    dpaf.n_critic = 1
    dpaf.taps = 'fourier,wavelet,shape,texture,conv2'
    if config.data.channels == 3:  # photographs
        dpaf.taps = f'contrast,leaves,{dpaf.taps}'
    dpaf.conv2.gradient = 'none'
    dpaf.head.learning_rate = 1e-3
    dpaf.head.penalty = 0.1
    generator = dpaf.generator
    generator.loss_single = 0.0
    generator.loss_aggregate = 1.0
    generator.batch_size = 120
    generator.learning_rate = 1e-3
    return _with_labeller(config, '50%,rest,50%')


def labelled(config: ConfigDict) -> ConfigDict:
    """To `one_shot` adds a labeller: a linear classifier that labels the images made.

    Three quarters of epsilon go to the labeller: what it knows of the classes cannot be
    got from their mean features, while those take noise well.
    """
    config.networks.layers = ''  # by the size
    dpaf = config.dpaf
    dpaf.taps = 'count,contrast,fourier,wavelet,shape,texture,labeller,leaves,kinds'
    dpaf.axes = 'few'
    config.networks.generator = 'fine'
    dpaf.generator.learning_rate = 4e-3
    dpaf.generator_steps = 0  # by the noise
    dpaf.generator.loss_smooth = 0.35
    dpaf.generator.whitenings = 1
    # 60 000 records in ten classes: from epsilon 6 on. With more noise it gains nothing, and
    # images look scratched, or have blots.
    dpaf.generator.whiten_below = 0.03
    dpaf.generator.latent_scale = 0.0  # by the channels
    return _with_labeller(config, '75%,rest,25%')


def _with_labeller(config: ConfigDict, budgets: str) -> ConfigDict:
    """Phase 1 is a labeller, which is kept: it labels the images that are drawn."""
    config.privacy.budgets = budgets
    config.dpaf.generator.warp, config.dpaf.generator.warp_of_few = 0.03, 0.07
    config.dpaf.generator.denoise = 0.1
    labeller = config.dpaf.classifier
    labeller.private = 'labeller'
    labeller.features = 'combined'
    labeller.optimizer = 'momentum'
    labeller.l2_clip_norm = 0.5
    labeller.sampling_prob = 1 / 15
    labeller.epochs = labeller.learning_rate = 0.0  # by N and epsilon
    return config


def with_public_features(config: ConfigDict) -> ConfigDict:
    """To `labelled` adds what a network that knows photographs sees: declared public data.

    The labeller reads them, too. They cost far more than wavelets, so steps are shorter and
    fewer.
    """
    dpaf = config.dpaf
    dpaf.taps = dpaf.taps.replace(',leaves,kinds', '') + ',perceptual'
    dpaf.axes = 'none'  # not measured
    dpaf.classifier.features = 'perceptual'
    dpaf.generator.denoise = 0.0  # what has no grain would lose the look of skin
    dpaf.generator.latent_scale = 1.0  # narrower, faces teach a point and a half less
    dpaf.generator_steps = dpaf.generator_steps * 3 // 4 or 1500
    dpaf.generator.batch_size = 64
    return config


def choose(config: ConfigDict, variant: str) -> ConfigDict:
    """Applies a variant by the name that follows a config's path: `mnist.py:canonical`."""
    if variant == 'recommended':
        return labelled(one_shot(config))
    if variant == 'one_shot':
        return one_shot(config)
    if variant == 'canonical':
        return small_batches(config)
    if variant != 'printed':
        raise ValueError(
            f"variant is {variant!r}. Choose 'recommended', 'one_shot', 'canonical' or "
            "'printed'."
        )
    return config


def photographs(config: ConfigDict, variant: str) -> ConfigDict:
    """As `choose`, for images that show the same when mirrored, and are as likely so."""
    config.dpaf.mirrored = variant in ('recommended', 'canonical')
    return choose(config, variant)


def colour32(config: ConfigDict, variant: str) -> ConfigDict:
    """Colour images of 32 x 32, at the settings of the grey ones of 28 x 28."""
    config.data.image_size = 32
    if variant == 'recommended':
        return config
    config.networks.layers = 'C2-C1-x' if variant == 'printed' else 'C1-C1-x'
    if variant == 'one_shot':
        config.networks.generator_width = 32
        config.dpaf.taps = 'count,fourier,conv2'
        config.dpaf.generator_steps = 4000
        config.dpaf.generator.batch_size = 200
    return config


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
            an npz archive, and epsilon (1 if it is left out). A table needs
            --config.data.columns with their public bounds; see data.label and
            data.num_classes, too.
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
        variant: as for `choose`.
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
    config = choose(default.get_config(), variant)
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
