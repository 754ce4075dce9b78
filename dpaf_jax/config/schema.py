"""The config as typed, frozen objects: read once at the door, checked, then trusted.

A field stands once: name, type, default value, permitted range and meaning, in data.py,
sections.py and methods/. `defaults` makes the ConfigDict of them that `configs/` change; below
`main` nobody asks a ConfigDict for anything.
"""

import dataclasses
import math
from collections.abc import Iterable

from ml_collections import ConfigDict

from dpaf_jax.config.data import DataConfig
from dpaf_jax.config.fields import (
    ABSENT,
    nested_defaults,
    plain,
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
