"""The config as typed, frozen objects: read once at the door, checked, then trusted.

A field stands once: name, type, canonical value, permitted range and meaning, here and
in methods.py. `defaults` makes the ConfigDict of them that `configs/` change; below
`main` nobody asks a ConfigDict for anything.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from dpaf_jax.config.fields import (
    ABSENT,
    at_least,
    between,
    nested_defaults,
    one_of,
    plain,
    read,
)
from dpaf_jax.config.methods import (
    DpafConfig,
    DpbaWganConfig,
    DpGanConfig,
    DpgenConfig,
    DpHpConfig,
    DpKernelConfig,
    DpMerfConfig,
    DpSinkhornConfig,
    GPateConfig,
    GsWganConfig,
    PearlConfig,
)
from dpaf_jax.runtime.errors import UserError

IMAGES = 'digits|(tfds|folder|npz|celeba|ffhq):.+'  # sources of them


class Column(NamedTuple):
    """A continuous column and its public bounds, never those of the data.

    Attributes:
        name: in the file.
        low: what lies below counts as this.
        high: what lies above counts as this.
    """

    name: str
    low: float
    high: float


def _column(text: str) -> Column:
    name, _, bounds = text.strip().partition(':')
    low, _, high = bounds.partition(':')
    try:
        made = Column(name, float(low), float(high))
    except ValueError:
        made = Column(name, math.nan, math.nan)
    if not name or not -math.inf < made.low < made.high < math.inf:
        problem = f'has the entry {text!r}'
        remedy = (
            "Write name:low:high, such as 'age:0:120,bmi:10:60', from public bounds"
        )
        raise UserError('config.data.columns', problem, remedy)
    return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images, and what is publicly known about them."""

    source: str = plain(
        'digits',
        'digits; tfds:<name>; folder:, npz:, celeba: or ffhq: and a path; table:<path>, '
        'a CSV file or an npz archive.',
    )
    image_size: int = at_least(
        16,
        0,
        'Side, 4 or more: images are cropped to the centred square, then resized. 0: from '
        'the data.',
    )
    channels: int = at_least(1, 0, '1: grey, 3: colour; 0: from the data.')
    num_classes: int = at_least(10, 0, 'K: labels are 0 .. K - 1; 0: from the data.')
    num_examples: int = at_least(
        0, 0, 'N, public, or any larger number; 0: from the data.'
    )
    test_fraction: float = between(
        0.2,
        0.0,
        0.9,
        'Held out by a hash where the source has no test split; 0: nothing is.',
    )
    attribute: str = one_of(
        '',
        ('', 'gender', 'hair'),
        "Label of celeba: 'gender' or 'hair'; of ffhq: 'gender'.",
    )
    annotations: str = plain('', 'ffhq: folder or file of the FFHQ features JSON.')
    class_prior: tuple[float, ...] = plain(
        (), 'Public class probabilities; empty: uniform, or noisy_prior.'
    )
    columns: str = plain(
        '', "table: its numbers with public bounds, 'age:0:120,bmi:10:60'."
    )
    label: str = plain('label', 'table: the column of its labels, 0 .. K - 1.')
    cache: str = plain(
        '', 'Where decoded images are kept (private!); empty: in the workdir.'
    )
    class_names: str = plain(
        '',
        "Public names of the classes by label, 'cat/dog'; '?': from the data; empty: their "
        'numbers.',
    )
    group: str = plain(
        '',
        'Whose pictures belong together, one of which takes part: a column of labels.csv, '
        "or a pattern for files' paths with ( ) around it; empty: each stands for itself.",
    )

    fit: str = one_of(
        'crop',
        ('crop', 'pad'),
        'Pictures that are no squares: cropped to the centre, or whole, padded with black.',
    )
    window: str = plain(
        '',
        'Grey levels of pictures with more than 8 bits that become black and white, '
        "'0:4095', from public knowledge.",
    )

    noisy_prior: float = between(
        0.0,
        0.0,
        0.5,
        'Share of epsilon for a noisy class histogram, which samples follow; 0: class_prior.',
    )

    @property
    def grey_levels(self) -> tuple[float, float] | None:
        """The window as numbers: what becomes 0 and what 255."""
        if not self.window:
            return None
        low, _, high = self.window.partition(':')
        return float(low), float(high)

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called in public, by label."""
        if not self.class_names:
            return tuple(map(str, range(self.num_classes)))
        return tuple(self.class_names.split('/'))

    @property
    def table(self) -> tuple['Column', ...]:
        """The columns of a table in their order; empty for images."""
        return tuple(map(_column, self.columns.split(','))) if self.columns else ()

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, C) of a record as it is stored: a table's row is one line of numbers."""
        if self.columns:
            return 1, len(self.table), 1
        return self.image_size, self.image_size, self.channels

    @property
    def prior(self) -> tuple[float, ...]:
        """The public class probabilities, [num_classes], summing to 1."""
        if not self.class_prior:
            return (1 / self.num_classes,) * self.num_classes
        return self.class_prior


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyConfig:
    """The guarantee asked for."""

    guarantee: str = one_of(
        'certified', ('certified', 'as_published'), 'as_published certifies nothing.'
    )
    epsilon: float = plain(10.0, 'Of everything; inf: no noise, no clip, no guarantee.')
    delta: float = plain(
        1e-5, 'Of everything; below 1 / num_examples; 0: a tenth of it.'
    )
    budgets: str = plain(
        '0.1,rest,0.1',
        "Epsilon of each mechanism (DPAF: phase 1, conv2*, DPAGG): '0.1', '20%' or 'rest'.",
    )
    overflow_fraction: float = between(
        0.01, 0.0, 0.5, 'Share of delta that pays for draws above their capacity.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworksConfig:
    """Shapes of the classifier, the discriminator and the generator."""

    layers: str = plain(
        'C2-C1-x', 'Of conv1-conv2*-conv3*, each halves the side; empty: by image_size.'
    )
    kernel_size: int = at_least(4, 2, 'Side of the kernels.')
    width: int = at_least(
        32, 1, 'Maps of the first layer; doubles from layer to layer ...'
    )
    max_width: int = at_least(256, 1, '... up to this.')
    fc_width: int = at_least(
        128, 1, 'Hidden units between the two fully connected layers.'
    )
    generator: str = one_of(
        'reverse', ('reverse', 'styled'),
        'reverse: of the discriminator; styled: the latent enters every layer.',
    )  # fmt: skip
    generator_width: int = at_least(
        32, 1, 'As width, for the generator, from the image inwards.'
    )
    z_dim: int = at_least(100, 1, 'Dimensions of the latent draw.')
    label_injection: str = one_of(
        'first_layer', ('first_layer', 'input', 'none'),
        'Where label planes enter the discriminator.',
    )  # fmt: skip


# A method's fields; a release has those of its own method alone.
METHOD_SECTIONS = (
    'dpaf',
    'dpgen',
    'g_pate',
    'dpba_wgan',
    'dp_gan',
    'gs_wgan',
    'dp_merf',
    'dp_kernel',
    'dp_hp',
    'pearl',
    'dp_sinkhorn',
)
TABLE_METHODS = ('g_pate',)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How a run uses its machine; changes nothing of what is computed."""

    devices: int = at_least(0, 0, 'Accelerators to use; 0: all.')
    checkpoint_seconds: float = at_least(300.0, 0.0, 'Between two checkpoints.')
    keep_checkpoints: int = at_least(2, 1, 'Of each phase.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig:
    """The synthetic data set of the samples stage."""

    num: int = at_least(60000, 1, 'Images; their labels follow the prior.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Train on synthetic, test on real."""

    seeds: int = at_least(5, 1, 'Classifiers of each kind.')
    epochs: int = at_least(5, 1, 'Over the synthetic images.')
    batch_size: int = at_least(128, 1, "Of the classifiers' training.")
    wide_resnet: str = one_of(
        '', ('', '16-2', '40-4'), 'A third kind of classifier, for a GPU; empty: none.'
    )
    train_on_real: bool = plain(
        False,
        'Also the ceiling by real images and the floor of fidelity, under nonprivate/.',
    )
    suite: str = one_of(
        'quick',
        ('quick', 'full', 'slow', 'dpimagebench'),
        'Which classifiers: two; also those of other papers; also large ones, for a GPU; '
        "or DPImageBench's, trained as there.",
    )
    fidelity_images: int = at_least(
        10_000, 0, 'Of each side, compared by features; 0: no fidelity.'
    )
    neighbours: int = at_least(3, 1, 'k of precision and recall.')
    datalens_epochs: int = at_least(600, 1, "Of the DataLens line's CNN.")
    datalens_batch_size: int = at_least(512, 1, "Of the DataLens line's CNN.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseConfig:
    """What the release may say."""

    test_set_is_public: bool = plain(
        False, 'Then the model card states accuracies on test images.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run."""

    method: str = plain('dpaf', 'The generative method: one of `methods.METHODS`.')
    data: DataConfig
    privacy: PrivacyConfig
    networks: NetworksConfig
    dpaf: DpafConfig = ABSENT
    dpgen: DpgenConfig = ABSENT
    dp_merf: DpMerfConfig = ABSENT
    dp_kernel: DpKernelConfig = ABSENT
    dp_hp: DpHpConfig = ABSENT
    pearl: PearlConfig = ABSENT
    dp_sinkhorn: DpSinkhornConfig = ABSENT
    dp_gan: DpGanConfig = ABSENT
    g_pate: GPateConfig = ABSENT
    dpba_wgan: DpbaWganConfig = ABSENT
    gs_wgan: GsWganConfig = ABSENT
    run: RunConfig
    samples: SamplesConfig
    evaluation: EvaluationConfig
    release: ReleaseConfig

    @property
    def public_data(self) -> DataConfig | None:
        """The data section of the public images that training starts from, if it does.

        All are of one class: theirs need not be those of the private images.
        """
        start = self.dpgen.warm_start if self.method == 'dpgen' else ''
        if not start or self.dpgen.private_share:
            return None
        attribute = (
            self.data.attribute if start.startswith(('celeba:', 'ffhq:')) else ''
        )
        return dataclasses.replace(
            self.data,
            source=start,
            attribute=attribute,
            num_classes=1,
            num_examples=0,
            class_prior=(),
            noisy_prior=0.0,
            group='',
            cache='',
        )


def defaults() -> ConfigDict:
    """Every field at its canonical value: certified DPAF on the embedded digits.

    Example:
        >>> config = defaults()
        >>> config.privacy.epsilon = 1.0
        >>> config.dpaf.batch_size, config.dpaf.asymmetry, config.dpaf.n_critic
        (24, 8, 3)
    """
    return ConfigDict(nested_defaults(Config))


def from_config_dict(config: ConfigDict, *, is_open: bool = False) -> Config:
    """Turns a ConfigDict into typed objects.

    Args:
        config: with exactly the fields of `defaults`.
        is_open: fields that say 0, 'from the data', may stay so.

    Returns:
        The frozen `Config`.

    Raises:
        UserError: for an unknown or missing field, a wrong type, a value out of range.

    Example:
        >>> config = defaults()
        >>> from_config_dict(config).data.shape
        (16, 16, 1)
        >>> config.data.image_size = 2
        >>> from_config_dict(config)
        Traceback (most recent call last):
        dpaf_jax.runtime.errors.UserError: config.data.image_size: is 2. It must be ...
    """
    if is_open:
        return _read(config.to_dict())
    typed = read_config(config.to_dict())
    check(typed)
    return typed


def check(config: Config) -> None:
    """How fields go together, none of them open; UserError where they do not."""
    _check_decided(config.data)
    _check_data(config.data)
    _check_privacy(config.privacy)
    _check_warm_start(config)
    if config.data.table:
        _check_knows_tables(config)


def read_config(fields: Mapping[str, Any]) -> Config:
    """The typed fields, each checked by itself; UserError for one that does not fit."""
    typed = _read(fields)
    _check_decided(typed.data)
    return typed


def _check_decided(data: DataConfig) -> None:
    for name, least in (('num_classes', 1), ('image_size', 4), ('channels', 1)):
        value = getattr(data, name)
        if value < least:
            where = f'config.data.{name}'
            raise UserError(where, f'is {value}', f'It must be at least {least}')


def _read(fields: Mapping[str, Any]) -> Config:
    typed = read(Config, fields, 'config')
    if getattr(typed, typed.method, typed) is ABSENT:
        where = f'config.{typed.method}'
        raise UserError(where, 'is missing', 'Start from configs/default.py')
    return typed


def _check_data(data: DataConfig) -> None:
    _check_names(data)
    _check_group(data)
    _check_window(data)
    prior = data.class_prior
    if prior and data.noisy_prior:
        problem = f'is {data.noisy_prior:g}, where config.data.class_prior is stated'
        remedy = 'Keep one: a noisy histogram is for a prior that nobody knows'
        raise UserError('config.data.noisy_prior', problem, remedy)
    if prior and (
        len(prior) != data.num_classes or min(prior) <= 0 or abs(sum(prior) - 1) > 1e-6
    ):
        raise UserError(
            'config.data.class_prior',
            f'is {prior}',
            f'Give {data.num_classes} positive numbers that sum to 1, from public knowledge',
        )
    names = [column.name for column in data.table]
    if len(set(names)) < len(names):
        problem = f'is {data.columns!r}, with a name twice'
        raise UserError('config.data.columns', problem, 'Keep one of each')
    if bool(names) != data.source.startswith('table:'):
        raise UserError(
            'config.data.columns',
            f'is {data.columns!r} with the source {data.source!r}',
            'A table needs columns and their public bounds, and only a table has them',
        )
    if not re.fullmatch(rf'{IMAGES}|table:.+', data.source):
        raise UserError(
            'config.data.source',
            f'is {data.source!r}',
            "Use 'digits', 'tfds:<name>', or folder:, npz:, celeba:, ffhq: or table: and "
            'a path',
        )


def _check_names(data: DataConfig) -> None:
    names = data.names
    usable = all(
        name.isprintable() and name.strip() == name and name[:1] not in ('', '.')
        for name in names
    )
    if len(names) != data.num_classes or len(set(names)) < len(names) or not usable:
        raise UserError(
            'config.data.class_names',
            f'is {data.class_names!r}',
            f'Give {data.num_classes} different names with / between them, or none',
        )


def _check_group(data: DataConfig) -> None:
    if data.group and not data.source.startswith(('folder:', 'celeba:', 'ffhq:')):
        kind = data.source.partition(':')[0]
        problem = (
            f'is {data.group!r}, but records of {kind} are known by their place alone'
        )
        remedy = 'Only files have names; use a folder, or leave it out'
        raise UserError('config.data.group', problem, remedy)
    if '(' not in data.group:
        return
    remedy = "Give a pattern with one pair of parentheses, such as '([^/_]*)_[^/]*$'"
    try:
        groups = re.compile(data.group).groups
    except re.error as error:
        problem = f'is {data.group!r} ({error})'
        raise UserError('config.data.group', problem, remedy) from error
    if groups != 1:
        raise UserError('config.data.group', f'is {data.group!r}', remedy)


def _check_window(data: DataConfig) -> None:
    try:
        low, high = data.grey_levels or (0.0, 1.0)
    except ValueError:
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        remedy = "Write low:high, two numbers, such as '0:4095', or nothing"
        raise UserError('config.data.window', f'is {data.window!r}', remedy)


def _check_knows_tables(config: Config) -> None:
    if config.method not in TABLE_METHODS:
        problem = f'is {config.method!r}, which knows images alone'
        remedy = f'Use {" or ".join(TABLE_METHODS)} for a table'
        raise UserError('config.method', problem, remedy)
    if config.evaluation.wide_resnet:
        problem = f'is {config.evaluation.wide_resnet!r}, which knows images alone'
        raise UserError('config.evaluation.wide_resnet', problem, "Set it to ''")


def _check_privacy(privacy: PrivacyConfig) -> None:
    if not privacy.epsilon > 0:
        raise UserError(
            'config.privacy.epsilon', f'is {privacy.epsilon}', 'It must be above 0'
        )
    if not 0 <= privacy.delta < 1:
        raise UserError(
            'config.privacy.delta', f'is {privacy.delta}', 'It must be in (0, 1)'
        )
    if privacy.delta == 0 and math.isfinite(privacy.epsilon):
        raise UserError(
            'config.privacy.delta',
            'is 0, which no Gaussian mechanism can meet',
            'Use less than 1 / num_examples, such as 1e-5',
        )


def _check_warm_start(config: Config) -> None:
    """What is read without noise must be public; only as published may it be private."""
    start = config.dpgen.warm_start if config.method == 'dpgen' else ''
    if not start:
        return
    try:
        share = config.dpgen.private_share
    except ValueError:
        share = math.nan
    if start.startswith('private'):
        known = 0 < share <= 1
    else:
        known = re.fullmatch(IMAGES, start) is not None
    where, remedy = 'config.dpgen.warm_start', 'Name a source of public images, or none'
    if not known:
        more = "; as published also 'private:<share>', such as private:0.1"
        raise UserError(where, f'is {start!r}', f'{remedy}{more}')
    if start == config.data.source:
        raise UserError(where, f'is {start!r}, the private images', remedy)
    if share and config.privacy.guarantee == 'certified':
        problem = (
            f'is {start!r}, but a certified run sees private images under noise alone'
        )
        raise UserError(where, problem, remedy)
