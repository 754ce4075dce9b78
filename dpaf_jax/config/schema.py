"""The config as typed, frozen objects: read once at the door, checked, then trusted.

A field stands once: name, type, default value, permitted range and meaning, in data.py,
sections.py and methods/. `defaults` makes the ConfigDict of them that `configs/` change; below
`main` nobody asks a ConfigDict for anything.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from dpaf_jax.config.data import IMAGES, DataConfig, check_data, check_decided
from dpaf_jax.config.fields import (
    ABSENT,
    nested_defaults,
    plain,
    read,
)
from dpaf_jax.config.methods import (
    DataLensConfig,
    DpafConfig,
    DpbaWganConfig,
    DpCganConfig,
    DpdmConfig,
    DpGanConfig,
    DpgenConfig,
    DpHpConfig,
    DpKernelConfig,
    DpMerfConfig,
    DpSinkhornConfig,
    FetaConfig,
    GPateConfig,
    GsWganConfig,
    NdpdcConfig,
    P3gmConfig,
    PateGanConfig,
    PearlConfig,
)
from dpaf_jax.config.methods.dpaf import public_network
from dpaf_jax.config.sections import (
    EvaluationConfig,
    NetworksConfig,
    PrivacyConfig,
    ReleaseConfig,
    RunConfig,
    SamplesConfig,
)
from dpaf_jax.runtime.errors import UserError

# Fewer teach classifiers less, whatever N; more cost hours of evaluation.
FEWEST_SAMPLES, MOST_SAMPLES = 20_000, 60_000
MANY_RECORDS = 5000  # of a class, times epsilon
# An entry of privacy.budgets.
BUDGET = re.compile(r'rest|(\d+\.?\d*|\.\d+)(e[-+]?\d+)?%?')
LEAST_DELTA = 1e-12  # further out the noise's law is not below the Gaussian mechanism's


WARM_METHODS = 'dpaf', 'dpgen'  # that can start from public images
# Methods that read other methods' fields, too.
BUILT_OF = {
    'feta': ('dpaf', 'dpgen'),
    'dpdm': ('dpgen',),
    'datalens': ('g_pate',),
    'pate_gan': ('g_pate',),
}
TABLE_METHODS = ('g_pate', 'pate_gan', 'dp_merf', 'dp_hp', 'pearl')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run."""

    method: str = plain(
        'dpaf', 'Name of the generative method, of those in methods.METHODS.'
    )
    data: DataConfig
    privacy: PrivacyConfig
    networks: NetworksConfig
    dpaf: DpafConfig = ABSENT
    dpgen: DpgenConfig = ABSENT
    dpdm: DpdmConfig = ABSENT
    feta: FetaConfig = ABSENT
    dp_merf: DpMerfConfig = ABSENT
    dp_kernel: DpKernelConfig = ABSENT
    dp_hp: DpHpConfig = ABSENT
    pearl: PearlConfig = ABSENT
    ndpdc: NdpdcConfig = ABSENT
    dp_sinkhorn: DpSinkhornConfig = ABSENT
    p3gm: P3gmConfig = ABSENT
    dp_gan: DpGanConfig = ABSENT
    dp_cgan: DpCganConfig = ABSENT
    g_pate: GPateConfig = ABSENT
    datalens: DataLensConfig = ABSENT
    pate_gan: PateGanConfig = ABSENT
    dpba_wgan: DpbaWganConfig = ABSENT
    gs_wgan: GsWganConfig = ABSENT
    run: RunConfig
    samples: SamplesConfig
    evaluation: EvaluationConfig
    release: ReleaseConfig

    def with_num_examples(self, number: int) -> 'Config':
        """The same with N stated, as a plan has it."""
        data = dataclasses.replace(self.data, num_examples=number)
        return dataclasses.replace(self, data=data)

    @property
    def has_few_records(self) -> bool:
        """Whether N times epsilon, by class, is below `MANY_RECORDS`: means are noisy there.

        False where N is not stated.
        """
        stated = self.data.num_examples or math.inf
        strength = stated * self.privacy.epsilon / self.data.num_classes
        return strength < MANY_RECORDS

    @property
    def public_features(self) -> str:
        """The network, learnt on public images, whose features the run reads; or ''."""
        has_section = 'dpaf' in sections_of(self.method)
        return public_network(dataclasses.asdict(self.dpaf)) if has_section else ''

    def num_samples(self, num_examples: int) -> int:
        """Size of the synthetic data set, by the public N."""
        if self.samples.num:
            return self.samples.num
        if self.method == 'ndpdc':  # the images themselves are the release
            return self.data.num_classes * self.ndpdc.held_per_class
        return min(max(num_examples, FEWEST_SAMPLES), MOST_SAMPLES)

    @property
    def warm_start(self) -> str:
        """The source of images that training starts from without noise; '': none."""
        own = getattr(self, self.method) if self.method in WARM_METHODS else None
        start: str = own.warm_start if own else ''
        return start

    @property
    def public_data(self) -> DataConfig | None:
        """The data section of the public images that training starts from, if it does.

        Their classes need not be those of the private images: all are of one, unless the
        method reads their labels.
        """
        start = self.warm_start
        if not start or start.startswith('private:'):
            return None
        return dataclasses.replace(
            self.data,
            source=start,
            attribute=_public_attribute(start, self.data.attribute),
            class_names='',
            num_classes=self.dpaf.warm_start_classes if self.method == 'dpaf' else 1,
            num_examples=0,
            class_prior=(),
            noisy_prior=0.0,
            group='',
            subset=0,
            cache='',
        )


def _public_attribute(source: str, private: str) -> str:
    """What is asked of public images: of faces the private attribute, or gender."""
    if source.startswith(('celeba:', 'tfds:celeb_a')):
        return private or 'gender'
    return 'gender' if source.startswith('ffhq:') else ''


# A method's fields; a release has those of its own method alone.
METHOD_SECTIONS = tuple(
    f.name for f in dataclasses.fields(Config) if f.default is ABSENT
)


def sections_of(method: str) -> tuple[str, ...]:
    """The sections that a method reads: its own, and those of methods it is built of."""
    return (method, *BUILT_OF.get(method, ()))


def check_is_read(method: str, fields: Iterable[str]) -> None:
    """Refuses a field that was stated for a method which does not read it.

    Args:
        method: as `config.method` has it.
        fields: their names, such as 'dpgen.steps'.

    Raises:
        UserError: naming the first one, and the sections that the method reads.

    Example:
        >>> check_is_read('feta', ['dpgen.steps', 'run.devices'])
    """
    own = sections_of(method)
    for field in fields:
        section = field.partition('.')[0]
        if section in METHOD_SECTIONS and section not in own:
            raise UserError(
                f'config.{field}',
                f'is a field of other methods, which {method} does not read',
                f'Leave it out, set fields of {" or ".join(own)}, or change config.method',
            )


def defaults() -> ConfigDict:
    """Every field at its default value: certified DPAF on the embedded digits.

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
    if not isinstance(config, ConfigDict):
        raise UserError(
            'config',
            f'is of type {type(config).__name__}, no ConfigDict',  # it may be private images
            'Give what get_config() of a file of configs/ returns, such as '
            "recommended.get_config('npz:/path/to/own.npz,1')",
        )
    if is_open:
        return _read(config.to_dict())
    typed = read_config(config.to_dict())
    check(typed)
    return typed


def check(config: Config) -> None:
    """How fields go together, none of them open; UserError where they do not."""
    check_decided(config.data)
    check_data(config.data)
    _check_privacy(config.privacy)
    _check_warm_start(config)
    if config.data.table:
        _check_knows_tables(config)


def read_config(fields: Mapping[str, Any]) -> Config:
    """The typed fields, each checked by itself; UserError for one that does not fit."""
    typed = _read(fields)
    check_decided(typed.data)
    return typed


def _read(fields: Mapping[str, Any]) -> Config:
    typed = read(Config, fields, 'config')
    for name in sections_of(typed.method):
        if getattr(typed, name, typed) is ABSENT:
            problem, remedy = 'is missing', 'Start from configs/default.py'
            raise UserError(f'config.{name}', problem, remedy)
    return typed


def _check_knows_tables(config: Config) -> None:
    if config.method not in TABLE_METHODS:
        problem = f'is {config.method!r}, which knows images alone'
        remedy = f'Use {" or ".join(TABLE_METHODS)} for a table'
        raise UserError('config.method', problem, remedy)
    if config.evaluation.wide_resnet:
        problem = f'is {config.evaluation.wide_resnet!r}, which knows images alone'
        raise UserError('config.evaluation.wide_resnet', problem, "Set it to ''")


def _check_privacy(privacy: PrivacyConfig) -> None:
    # Also where one mechanism takes everything: it is released, and no text may hide in it.
    for entry in privacy.budgets.split(','):
        if not BUDGET.fullmatch(entry.strip()):
            problem, remedy = f'has the entry {entry!r}', "Use '0.1', '20%' or 'rest'"
            raise UserError('config.privacy.budgets', problem, remedy)
    if not privacy.epsilon > 0:
        raise UserError(
            'config.privacy.epsilon', f'is {privacy.epsilon}', 'It must be above 0'
        )
    if not 0 <= privacy.delta < 1:
        raise UserError(
            'config.privacy.delta', f'is {privacy.delta}', 'It must be in (0, 1)'
        )
    if privacy.delta == 0 and privacy.is_private:
        raise UserError(
            'config.privacy.delta',
            'is 0, which no Gaussian mechanism can meet',
            'Use less than 1 / num_examples, such as 1e-5',
        )
    if 0 < privacy.delta < LEAST_DELTA and privacy.is_private:
        raise UserError(
            'config.privacy.delta',
            f'is {privacy.delta:g}; the law of the noise is proven from {LEAST_DELTA:g} on',
            'Use so much or more, below 1 / num_examples',
        )


def _check_warm_start(config: Config) -> None:
    """What is read without noise must be public; only as published may it be private."""
    for section in WARM_METHODS:
        has_one = section in sections_of(config.method)
        start = getattr(config, section).warm_start if has_one else ''
        if start and config.method != section:
            problem = f'is {start!r}, which {config.method} does not start from'
            raise UserError(f'config.{section}.warm_start', problem, "Set it to ''")
    start = config.warm_start
    if not start:
        return
    try:
        share = config.dpgen.private_share if config.method == 'dpgen' else 0.0
    except ValueError:
        share = math.nan
    if config.method == 'dpgen' and start.startswith('private'):
        known = 0 < share <= 1
    else:
        known = re.fullmatch(IMAGES, start) is not None
    where = f'config.{config.method}.warm_start'
    remedy = 'Name a source of public images, or none'
    if not known:
        if config.method == 'dpgen':
            remedy += "; as published also 'private:<share>', such as private:0.1"
        raise UserError(where, f'is {start!r}', remedy)
    if start == config.data.source:
        raise UserError(where, f'is {start!r}, the private images', remedy)
    if share and config.privacy.guarantee == 'certified':
        problem = (
            f'is {start!r}, but a certified run sees private images under noise alone'
        )
        raise UserError(where, problem, remedy)
