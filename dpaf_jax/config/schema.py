"""The config as typed, frozen objects: read once at the door, checked, then trusted.

Values live in `configs/`; this file gives each field its type and its permitted
range. Below `main` nobody asks a ConfigDict for anything.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from dpaf_jax.config.fields import ABSENT, at_least, between, one_of, read
from dpaf_jax.config.methods import (
    DpafConfig,
    DpbaWganConfig,
    DpGanConfig,
    DpgenConfig,
    DpMerfConfig,
    GPateConfig,
    GsWganConfig,
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

    source: str
    image_size: int = at_least(4)
    channels: int = at_least(1)
    num_classes: int = at_least(1)
    num_examples: int = at_least(0)
    test_fraction: float = between(0.0, 0.9)
    attribute: str = one_of('', 'gender', 'hair')
    annotations: str
    class_prior: tuple[float, ...]
    columns: str
    label: str
    cache: str

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

    guarantee: str = one_of('certified', 'as_published')
    epsilon: float
    delta: float
    budgets: str
    overflow_fraction: float = between(0.0, 0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworksConfig:
    """Shapes of the classifier, the discriminator and the generator."""

    layers: str
    kernel_size: int = at_least(2)
    width: int = at_least(1)
    max_width: int = at_least(1)
    fc_width: int = at_least(1)
    generator: str = one_of('reverse', 'styled')
    generator_width: int = at_least(1)
    z_dim: int = at_least(1)
    label_injection: str = one_of('first_layer', 'input', 'none')


# A method's fields; a release has those of its own method alone.
METHOD_SECTIONS = (
    'dpaf',
    'dpgen',
    'g_pate',
    'dpba_wgan',
    'dp_gan',
    'gs_wgan',
    'dp_merf',
)
TABLE_METHODS = ('g_pate',)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How a run uses its machine; changes nothing of what is computed."""

    devices: int = at_least(0)
    checkpoint_seconds: float = at_least(0.0)
    keep_checkpoints: int = at_least(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig:
    """The synthetic data set of the samples stage."""

    num: int = at_least(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Train on synthetic, test on real."""

    seeds: int = at_least(1)
    epochs: int = at_least(1)
    batch_size: int = at_least(1)
    wide_resnet: str = one_of('', '16-2', '40-4')
    train_on_real: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseConfig:
    """What the release may say."""

    test_set_is_public: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run."""

    method: str
    data: DataConfig
    privacy: PrivacyConfig
    networks: NetworksConfig
    dpaf: DpafConfig = ABSENT
    dpgen: DpgenConfig = ABSENT
    dp_merf: DpMerfConfig = ABSENT
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
            cache='',
        )


def from_config_dict(config: ConfigDict) -> Config:
    """Turns a ConfigDict into typed objects.

    Args:
        config: with exactly the fields of `configs/default.py`.

    Returns:
        The frozen `Config`.

    Raises:
        UserError: for an unknown or missing field, a wrong type, a value out of range.
    """
    typed = read_config(config.to_dict())
    _check_data(typed.data)
    _check_privacy(typed.privacy)
    _check_warm_start(typed)
    if typed.data.table:
        _check_knows_tables(typed)
    return typed


def read_config(fields: Mapping[str, Any]) -> Config:
    """The typed fields, each checked by itself; UserError for one that does not fit."""
    typed = read(Config, fields, 'config')
    if getattr(typed, typed.method, typed) is ABSENT:
        where = f'config.{typed.method}'
        raise UserError(where, 'is missing', 'Start from configs/default.py')
    return typed


def _check_data(data: DataConfig) -> None:
    prior = data.class_prior
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
