"""The release's README: what the generator is, what it guarantees, what it does not."""

from typing import Any

from dpaf_jax.config import Config, DataConfig, public_source
from dpaf_jax.config.methods.dpaf import PERCEPTUAL
from dpaf_jax.networks.perceptual.efficientnet import INSTALL
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.samplers.dpaf import warp
from dpaf_jax.release.samplers.protocol import StoredImageSampler
from dpaf_jax.release.samplers.published_dpgen import is_published
from dpaf_jax.release.samplers.registry import make_sampler

# Classifiers whose figures a card may show, in its order: of images, of tables.
MODELS = (
    'resnext',
    'wide_resnet_40_4',
    'resnet_110',
    'wide_resnet_16_2',
    'datalens_cnn',
    'wide_resnet',
    'cnn',
    'logistic_regression',
)
TABLE_MODELS = ('logistic_regression', 'adaboost', 'bagging', 'mlp')

TEMPLATE = """\
# Synthetic image generator ({method})

Generates {records} in {classes}, trained {under}with dpaf_jax.

{picture}

## Privacy

**{headline}**

- Guarantee: {guarantee}
- Neighbours: {neighbors}.
- delta = {delta:g} in total, of which {overflow:.2g} pays for draws that overflow.
- N = {num_examples}, public.
- By Renyi DP, a looser accountant: epsilon = {epsilon_rdp}.

{unit} Every mechanism is listed
in `privacy.json`, with the whole composition as dp-accounting events: anybody can rebuild
`dp_event` and recompute epsilon at delta minus overflow_delta.
{published}{public_data}
## Use

    python -m dpaf_jax.sample --release=. --num=60000 --out=synthetic.npz

needs neither data nor training code. `--out=folder/` writes PNG files by class.{held}{labels}

## Not covered

Choosing settings by looking at results on real data, and figures measured on real test
images, are not covered by epsilon. No checkpoint, seed or stop was chosen on real data.
Samples may carry over biases of the training images, and need not be fit for any purpose.
{accuracy}"""

SHOWN = '![Synthetic samples, one row per class](samples.png)'
SHOWN_UNBENT = '![Synthetic samples, one row per class, not bent](samples.png)'
ONE_IMAGE = """\
The unit of protection is one image with its label, not one person: somebody with k images
in the training set is protected at k times this epsilon, and only at a delta that is up to
k e^((k-1) epsilon) times as large. At epsilon = 10 that is next to nothing for k = 3."""
# What cards said of it until 2026-11-28, which is too kind.
EARLIER_ONE_IMAGE = """\
The unit of protection is one image with its label, not one person: somebody with k images
in the training set is protected at about k times this epsilon."""
ONE_GROUP = """\
The unit of protection is a whole group of images that belong together (`data.group` in
`config.json`), such as all of one person: one image of each group took part in training."""


def model_card(
    config: Config, privacy: dict[str, Any], accuracy: dict[str, Any] | None = None
) -> str:
    """The card as Markdown.

    Args:
        config: of the run.
        privacy: the content of privacy.json.
        accuracy: test-set figures, only where the test set is declared public.
    """
    claimed = privacy.get('claimed_epsilon')
    return TEMPLATE.format(
        method=config.method,
        picture=SHOWN_UNBENT if bends(config) else SHOWN,
        records=_records(config),
        classes=classes(config.data),
        under='under differential privacy ' if is_certified(privacy) else '',
        headline=headline(privacy),
        guarantee=privacy['guarantee'],
        neighbors=privacy['neighbors'],
        unit=ONE_GROUP if config.data.group else ONE_IMAGE,
        delta=privacy['delta'],
        overflow=privacy['overflow_delta'],
        num_examples=privacy['num_examples'],
        epsilon_rdp=privacy['epsilon_rdp'],
        published=f'\nThe method as published claims epsilon = {claimed}; the proof does not '
        'hold for the algorithm.\n'
        if claimed is not None
        else '',
        public_data=_public_features(config) + _warm_start(config),
        held=_held(config),
        labels=_labels(config),
        accuracy=_figures(config, accuracy) if accuracy else '',
    )


def classes(data: DataConfig) -> str:
    """How many, and what they are called where that is public."""
    names = f' ({", ".join(data.names)})' if data.class_names else ''
    return f'{data.num_classes} classes{names}'


def _records(config: Config) -> str:
    data = config.data
    if data.columns:
        return f'rows of a table with {len(data.table)} columns'
    size, channels = data.image_size, data.channels
    return f'{size} x {size} images with {channels} channel(s)'


def _held(config: Config) -> str:
    sampler = make_sampler(config)
    if not isinstance(sampler, StoredImageSampler):
        return ''
    number = config.data.num_classes * sampler.number
    return (
        f'\nIt holds {number} images and deals them out in turn: whoever asks for more gets '
        'copies.'
    )


def bends(config: Config) -> bool:
    """Whether data sets that are drawn have bent images."""
    return _has_labeller(config) and warp(config) > 0


def _has_labeller(config: Config) -> bool:
    return config.method == 'dpaf' and config.dpaf.classifier.private == 'labeller'


def _labels(config: Config) -> str:
    if is_published(config):
        return (
            ' An image\nhas the label that a classifier gives it. The classifier has learnt '
            'from the private images\nand their labels, without noise, and is part of the '
            'generator: no epsilon covers it.'
        )
    if not _has_labeller(config):
        return ''
    drawn = ['bent a little at random'] if bends(config) else []
    drawn += ['mirrored by a coin'] if config.dpaf.mirrored else []
    how = f', {" and ".join(drawn)},' if drawn else ''
    return (
        f' An image{how}\nhas the label that a classifier gives it; it is part of the '
        'generator, and its training is\npart of epsilon.'
    )


def _public_features(config: Config) -> str:
    if not config.public_features:
        return ''
    labels = config.dpaf.classifier
    needs = labels.private == 'labeller' and labels.features == PERCEPTUAL
    return (
        '\n**Public data were used.** What the mechanisms read of the images are features of '
        f'a public network:\n{config.public_features}. Epsilon does not cover what it has '
        'learnt from. Compare this\nrelease with those of methods that use public data too; '
        'fidelity in features of that network\nflatters it.'
        + f' Labels need its weights: `{INSTALL}`.' * needs
        + '\n'
    )


def _warm_start(config: Config) -> str:
    if not config.warm_start:
        return ''
    source = public_source(config.warm_start)
    if source.startswith('private:'):
        return (
            f'\nTraining started on private images as they are (`{source}`), without '
            'noise.\n'
        )
    return (
        '\n**Public data were used.** Training started, without noise, on images that are '
        f'public by the\nword of whoever ran it (source: `{source}`). Epsilon does not cover '
        'them. Compare this release with\nthose of methods that use public data too.\n'
    )


def is_certified(privacy: dict[str, Any]) -> bool:
    """Whether the content of a privacy.json promises anything."""
    return bool(privacy['guarantee'] == CERTIFIED)


def headline(privacy: dict[str, Any]) -> str:
    """One line that says what is guaranteed, or that nothing is."""
    if is_certified(privacy):
        return (
            f'epsilon = {privacy["epsilon"]} at delta = {privacy["delta"]:g}, certified'
        )
    if 'claimed_epsilon' in privacy:
        return (
            f'claimed epsilon = {privacy["claimed_epsilon"]}, certified epsilon: none'
        )
    return 'certified epsilon: none'


def figures_head(config: Config) -> str:
    """What stands above the rows of figures on a public test set."""
    name = 'AUROC' if config.data.columns else 'Accuracy'
    return (
        f'\n## {name} on the public test set\n\n'
        '| trained on synthetic | mean | std | seeds |\n|---|---|---|---|\n'
    )


def _figures(config: Config, accuracy: dict[str, Any]) -> str:
    names = TABLE_MODELS if config.data.columns else MODELS
    rows = ''.join(
        f'| {model} | {a["mean"]:.3f} | {a["std"]:.3f} | {len(a["values"])} |\n'
        for model, a in accuracy.items()
        if model in names
    )
    return figures_head(config) + rows if rows else ''
