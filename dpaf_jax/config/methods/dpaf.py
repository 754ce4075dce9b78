"""DPAF: phase 1, the discriminator, the generator, the schedule."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpaf_jax.config.fields import above, at_least, between, one_of, plain
from dpaf_jax.config.methods.common import CLIP, OPTIMIZERS, SCHEDULE, SCHEDULES, ema

PERCEPTUAL = 'perceptual'  # features that have learnt from public images
LEAVES = 'leaves'  # from random shapes


def public_network(section: Mapping[str, Any]) -> str:
    """The network, learnt on public images, that a run with this section reads; or ''.

    Args:
        section: fields of `DpafConfig`, as a release's config.json has them, or none.
    """
    labeller = section.get('classifier', {})
    reads = {
        *map(str.strip, section.get('taps', '').split(',')),
        labeller.get('features') if labeller.get('private') == 'labeller' else None,
    }
    return 'EfficientNet-Lite0, learnt on ImageNet' if PERCEPTUAL in reads else ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """DPAF's phase 1: the classifier whose conv1, or whose judgement, is kept."""

    private: str = one_of(
        'all', ('all', 'conv1', 'labeller', 'discriminator', 'none'),
        'What learns: all; conv1 (head random); none (conv1 random too); labeller, a '
        'linear layer on wavelets that is kept to label the synthetic images; '
        'discriminator: nothing yet, conv1 learns in phase 2, with noise of its own.',
    )  # fmt: skip
    features: str = one_of(
        'wavelet', ('wavelet', PERCEPTUAL, LEAVES),
        'What a labeller is linear on; perceptual: what a public network sees; leaves: what '
        'one sees that knows random shapes alone.',
    )  # fmt: skip
    unit: str = one_of('singleton', ('singleton', 'group'), 'What is clipped as one.')
    num_groups: int = at_least(8, 1, 'Groups per step, where unit = group.')
    batch_size: int = at_least(192, 1, 'Expected images per step.')
    sampling_prob: float = between(
        0.0, 0.0, 1.0, 'Share of N per step; 0: what batch_size gives.'
    )
    epochs: float = at_least(
        2.0,
        0.0,
        'Expected passes over the data; 0: a labeller has a rule by N, epsilon.',
    )
    l2_clip_norm: float = above(1.0, 0.0, CLIP)
    optimizer: str = one_of('adam', OPTIMIZERS, 'Of phase 1.')
    learning_rate: float = at_least(1e-3, 0.0, '0: a labeller has a rule.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv2Config:
    """DPAF's conv2*: how its private gradient is taken."""

    gradient: str = one_of(
        'singleton', ('singleton', 'group', 'cotangent', 'none'),
        'Through each image as its own aggregate, a group of images, or the cotangent at '
        'a noised aggregate; none: conv2* stays random.',
    )  # fmt: skip
    num_groups: int = at_least(8, 1, 'Groups per update, where gradient = group.')
    batch_size: int = at_least(
        192, 1, 'Expected images per update; canonical: asymmetry x batch_size.'
    )
    with_conv1: bool = plain(
        False, 'conv1 learns here, too, in one clipped vector; then phase 1 does not.'
    )
    l2_clip_norm: float = above(1.0, 0.0, CLIP)
    optimizer: str = one_of('adam', OPTIMIZERS, 'Of conv2*.')
    learning_rate: float = above(2e-4, 0.0, 'Of conv2*.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """DPAF's conv3* and FC*, trained on DPAGG's output."""

    optimizer: str = one_of('adam', OPTIMIZERS, 'Of the head.')
    learning_rate: float = above(2e-4, 0.0, 'Of the head.')
    steps: int = at_least(1, 1, 'For each release of DPAGG, with fresh fakes.')
    memory: int = at_least(
        1, 1,
        'Releases of each aggregate that a step reads, beside as many of fakes: the latest '
        'since conv2* last changed.',
    )  # fmt: skip
    penalty: float = at_least(
        0.0, 0.0,
        "Weight of the squared gradient of its answers by aggregates, in units of a row's "
        'bound (R1): a head that is too sure teaches the generator nothing.',
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """DPAF's generator: its losses and its optimiser."""

    loss_single: float = at_least(
        1.0, 0.0, 'Weight: adversarial, on single fakes (canonical).'
    )
    loss_aggregate: float = at_least(
        0.0, 0.0, 'Weight: adversarial, on noised aggregates of fakes.'
    )
    loss_match: float = at_least(
        0.0, 0.0, 'Weight: unbiased squared distance to the noised class aggregates.'
    )
    loss_smooth: float = at_least(
        0.0, 0.0,
        "Weight: total variation of fakes, times the length of the aggregates' noise, "
        'while loss_match is not whitened. Without it few records bring images of noise.',
    )  # fmt: skip
    whitenings: int = at_least(
        0, 0,
        "How often, at equal distances, loss_match is whitened: measured in units of the "
        "fakes' own spread from then on. Class-pure batches of all images alone.",
    )  # fmt: skip
    whiten_below: float = at_least(
        0.0, 0.0,
        'Whiten only if the noise of a mean feature row is at most so long, in units of '
        "the row's bound; 0: always. Longer noise would be learnt as texture.",
    )  # fmt: skip
    batch_size: int = at_least(
        24,
        1,
        'Fakes per step; where loss_match gets whitened, a third of them until then.',
    )
    optimizer: str = one_of('adam', OPTIMIZERS, 'Of the generator.')
    learning_rate: float = above(2e-4, 0.0, 'Of the generator.')
    schedule: str = one_of('constant', SCHEDULES, SCHEDULE)
    ema_decay: float = ema(0.999)
    latent_scale: float = above(
        1.0, 0.0, "Of the released sampler's latent draws; above 1: more variety."
    )
    warp: float = between(
        0.0, 0.0, 0.5,
        'How far released images are bent before a labeller labels them: standard '
        "deviation of a pixel's smooth displacement, as a share of the side.",
    )  # fmt: skip

    @property
    def adversarial(self) -> bool:
        """Whether the discriminator's head is needed at all."""
        return self.loss_single > 0 or self.loss_aggregate > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpafConfig:
    """DPAF: schedule, aggregation and the parts."""

    batches: str = one_of(
        'mixed', ('mixed', 'class_pure'),
        'mixed is canonical; class_pure: one aggregate per class.',
    )  # fmt: skip
    batch_size: int = at_least(
        24, 0, 'Expected images per aggregate; 0: all there are (q = 1).'
    )
    classes_per_step: int = at_least(
        0, 0, 'class_pure: so many classes a step, in turn; 0: all.'
    )
    epochs: float = at_least(
        5.0,
        0.0,
        'How often DPAGG sees an image, in expectation; 0: as often as 500 steps take.',
    )
    asymmetry: int = at_least(8, 1, 'mu: DPAGG steps for each update of conv2*.')
    n_critic: int = at_least(3, 1, 'DPAGG steps for each round of the generator.')
    generator_steps: int = at_least(1, 1, 'Generator steps in a round.')
    keep_fraction: float = between(
        0.9,
        1e-6,
        1.0,
        'Share of a per-example gradient, by magnitude, kept before the clip.',
    )
    signs: bool = plain(False, 'Of what is kept, signs alone count (TOPAGG).')
    activation: str = one_of(
        'leaky_relu', ('leaky_relu', 'tanh'),
        'Of classifier and discriminator; tanh is a tempered sigmoid.',
    )  # fmt: skip
    taps: str = plain(
        'conv2', 'What DPAGG sums, joined by commas: see docs/explanation/algorithm.md.'
    )
    warm_start: str = plain(
        '',
        'A source of PUBLIC images on which all of this runs first, without noise, such as '
        'npz:/path; your word that they are. Empty: none.',
    )
    warm_start_parts: str = one_of(
        'both', ('both', 'discriminator'), 'What of it the private training starts with.'
    )  # fmt: skip
    warm_start_classes: int = at_least(
        1, 1, 'Of the public images; 1: their labels are not read.'
    )
    classifier: ClassifierConfig
    conv2: Conv2Config
    head: HeadConfig
    generator: GeneratorConfig

    @property
    def tap_names(self) -> tuple[str, ...]:
        """What DPAGG aggregates, in the order of its output."""
        return tuple(name.strip() for name in self.taps.split(','))
