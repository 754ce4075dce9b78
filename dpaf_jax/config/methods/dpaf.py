"""DPAF: phase 1, the discriminator, the generator, the schedule."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpaf_jax.config.fields import above, at_least, between, image_source, one_of, plain
from dpaf_jax.config.methods.common import OPTIMIZERS, SCHEDULE, SCHEDULES, ema

LABELLER = 'labeller'  # a phase 1, and what DPAGG may sum of it
PERCEPTUAL = 'perceptual'  # features that have learnt from public images
LEAVES = 'leaves'  # from random shapes
COMBINED = 'combined'  # wavelets beside those
PHASE_1 = 'in phase 1, or of conv1 in phase 2 where private is discriminator'


def public_network(section: Mapping[str, Any]) -> str:
    """The network, learnt on public images, that a run with this section reads; or ''.

    Args:
        section: fields of `DpafConfig`, as a release's config.json has them, or none.
    """
    labeller = section.get('classifier', {})
    reads = {
        *map(str.strip, section.get('taps', '').split(',')),
        labeller.get('features') if labeller.get('private') == LABELLER else None,
    }
    return 'EfficientNet-Lite0, learnt on ImageNet' if PERCEPTUAL in reads else ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """DPAF's phase 1: a classifier, of which conv1 is kept, or all."""

    private: str = one_of(
        'all', ('all', 'conv1', LABELLER, 'discriminator', 'none'),
        'What phase 1 learns from the images: a classifier, of which conv1 is kept '
        '(all); conv1 alone (conv1); a linear layer on features, kept to label the '
        'synthetic images (labeller); nothing, as conv1 learns in phase 2 with noise '
        'of its own (discriminator); nothing, and conv1 stays random (none). '
        'As_published conv1 is read as all.',
    )  # fmt: skip
    features: str = one_of(
        'wavelet', ('wavelet', PERCEPTUAL, LEAVES, COMBINED),
        'Features that a labeller reads: fixed wavelets (wavelet), those of a network '
        'learnt on ImageNet (perceptual), or of one learnt on random shapes (leaves); '
        'wavelets, and leaves along the principal axes of random pictures (combined).',
    )  # fmt: skip
    unit: str = one_of(
        'singleton',
        ('singleton', 'group'),
        'What phase 1 clips as one: each record (singleton), or each clip group of '
        'records (group). Unused as_published.',
    )
    num_groups: int = at_least(
        8, 1, 'Number of clip groups in a step of phase 1, where unit is group.'
    )
    batch_size: int = at_least(
        192,
        1,
        'Expected batch size of phase 1, where sampling_prob is 0; as_published it is '
        'dpaf.batch_size.',
    )
    sampling_prob: float = between(
        0.0,
        0.0,
        1.0,
        'Probability of a record to be in a batch of phase 1; 0: batch_size / N. '
        'Unused as_published.',
    )
    epochs: float = at_least(
        2.0,
        0.0,
        'Expected number of passes of phase 1 over the data; 0, for a labeller alone: '
        'as many steps as a rule by N and epsilon gives. As_published there are as many '
        'steps as in phase 2: both go over the same batches.',
    )
    l2_clip_norm: float = above(
        1.0, 0.0, f"Clipping bound on the l2 norm of each unit's gradient {PHASE_1}."
    )
    optimizer: str = one_of('adam', OPTIMIZERS, f'Optimiser {PHASE_1}.')
    learning_rate: float = at_least(
        1e-3,
        0.0,
        f'Learning rate {PHASE_1}; 0, for a labeller alone: a rule by N and epsilon.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv2Config:
    """DPAF's conv2*: how its private gradient is taken."""

    gradient: str = one_of(
        'singleton', ('singleton', 'group', 'cotangent', 'none'),
        'What an update of conv2* clips: the gradient of each record as its own '
        'aggregate (singleton), of each clip group of records as one (group), of each '
        'record by the slope of the loss at a noised aggregate (cotangent); or '
        'nothing, and conv2* stays random (none). Unused as_published.',
    )  # fmt: skip
    num_groups: int = at_least(
        8, 1, 'Number of clip groups in an update of conv2*, where gradient is group.'
    )
    batch_size: int = at_least(
        192,
        1,
        'Expected batch size of an update of conv2*. Unused as_published: there it is '
        'dpaf.asymmetry x dpaf.batch_size.',
    )
    with_conv1: bool = plain(
        False,
        'Whether conv1 learns with conv2*, clipped with it as one vector, and not in '
        'phase 1.',
    )
    l2_clip_norm: float = above(
        1.0, 0.0, "Clipping bound on the l2 norm of each unit's gradient of conv2*."
    )
    optimizer: str = one_of('adam', OPTIMIZERS, 'Optimiser of conv2*.')
    learning_rate: float = above(2e-4, 0.0, 'Learning rate of conv2*.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """DPAF's conv3* and FC*, trained on DPAGG's output."""

    begins_at_zero: bool = plain(
        False,
        "Whether FC*'s last layer begins at zero, and not at random as printed. A random "
        'answer sends the generator far from where any image is, before the head has '
        'learnt one.',
    )
    optimizer: str = one_of('adam', OPTIMIZERS, 'Optimiser of the head.')
    learning_rate: float = above(2e-4, 0.0, 'Learning rate of the head.')
    steps: int = at_least(
        1,
        1,
        'Number of training steps of the head, each with fresh fakes, after each DPAGG '
        'step; where dpaf.batch_size is 0, before each generator step.',
    )
    memory: int = at_least(
        1, 1,
        'Number of latest noised values of each aggregate that a step of the head reads, '
        'beside as many of fakes. Values from before an update of conv2* are left out.',
    )  # fmt: skip
    penalty: float = at_least(
        0.0, 0.0,
        "Weight of half the squared gradient of the head's answers by aggregates, "
        "real and fake, in units of a row's bound (R1 and R2): a head that is too "
        'sure teaches the generator nothing. 0: none.',
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """DPAF's generator: its losses and its optimiser."""

    loss_single: float = at_least(
        1.0, 0.0, 'Weight of the adversarial loss on single fakes, as printed; 0: off.'
    )
    loss_aggregate: float = at_least(
        0.0,
        0.0,
        'Weight of the adversarial loss on noised aggregates of fakes; 0: off.',
    )
    loss_match: float = at_least(
        0.0, 0.0,
        "Weight of the unbiased squared distance between the fakes' mean feature rows "
        'and the released ones; 0: off.',
    )  # fmt: skip
    loss_smooth: float = at_least(
        0.0, 0.0,
        "Weight of the fakes' total variation, in force until loss_match is whitened; it "
        "is multiplied by the length of the aggregates' noise. 0: off. With few records "
        'and without this loss images are noise.',
    )  # fmt: skip
    whitenings: int = at_least(
        0, 0,
        'Number of times, at equal intervals, that loss_match is whitened: from then '
        "on it is in units of the fakes' own spread. Needs class-pure batches of all "
        'images. 0: never.',
    )  # fmt: skip
    whiten_below: float = at_least(
        0.0, 0.0,
        'Largest length of the noise of a mean feature row at which loss_match is '
        "whitened, in units of the row's bound (along axes half as much); 0: any. Longer "
        'noise would be learnt as texture.',
    )  # fmt: skip
    batch_size: int = at_least(
        24,
        1,
        'Number of fakes in a generator step; where the distance is to be whitened, '
        'loss_match sees a third of them until then.',
    )
    optimizer: str = one_of('adam', OPTIMIZERS, 'Optimiser of the generator.')
    learning_rate: float = above(2e-4, 0.0, 'Learning rate of the generator.')
    schedule: str = one_of(
        'constant', SCHEDULES, f'{SCHEDULE} Each whitening starts it anew.'
    )
    ema_decay: float = ema(0.999)
    latent_scale: float = at_least(
        1.0, 0.0,
        'Standard deviation of the latent vectors that released images are drawn from; '
        'it is 1 in training. Below 1 images are more like real ones, above 1 more '
        'various. 0: 0.85 for grey images, 0.7 for colour.',
    )  # fmt: skip
    denoise: float = between(
        0.0, 0.0, 1.0,
        'Strength of the non-local means that take the grain off released images: how '
        'unlike two squares of 3 x 3 pixels may be, in units of which an image has 2 '
        'from black to white; 0: none.',
    )  # fmt: skip
    warp: float = between(
        0.0, 0.0, 0.5,
        'Largest strength at which released images are bent at random, before a '
        "labeller labels them: standard deviation of a pixel's smooth displacement "
        'along an axis, as a share of the side; 0: none.',
    )  # fmt: skip
    warp_of_few: float = between(
        0.0, 0.0, 0.5,
        'The same with few records (num_examples times epsilon below 5000 a class), whose '
        'generator is less various; 0: as warp.',
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
        'Kind of aggregates: one of all classes, as printed (mixed), or one for each '
        'class (class_pure).',
    )  # fmt: skip
    batch_size: int = at_least(
        24,
        0,
        'Expected number of images in an aggregate, in the mean over classes; 0: all '
        'images at every DPAGG step (q = 1).',
    )
    classes_per_step: int = at_least(
        0,
        0,
        'Number of classes in a DPAGG step, which take turns, where batches is '
        'class_pure; 0: all.',
    )
    epochs: float = at_least(
        5.0,
        0.0,
        'Expected number of passes of DPAGG over the images; 0: 500 DPAGG steps '
        'instead, with classes_per_step 500 of each class.',
    )
    asymmetry: int = at_least(
        8, 1, 'Number of DPAGG steps for each update of conv2* (mu).'
    )
    n_critic: int = at_least(
        3,
        1,
        'Number of DPAGG steps for each round of generator steps; it must be 1 where '
        'batch_size is 0.',
    )
    generator_steps: int = at_least(
        1,
        0,
        'Number of generator steps in a round. 0, where batch_size is 0: by the noise. That '
        'is 2000 steps, or fewer where noise is long: 240 (along axes 50) divided by the '
        "length of the aggregates' noise, but at least 100.",
    )
    keep_fraction: float = between(
        0.9,
        1e-6,
        1.0,
        "Share of a per-example gradient's entries, the largest, that are kept before "
        'it is clipped; a labeller keeps all.',
    )
    signs: bool = plain(
        False,
        'Whether the kept entries of a gradient become their signs before it is '
        "clipped (TOPAGG); a labeller's do not.",
    )
    activation: str = one_of(
        'leaky_relu', ('leaky_relu', 'tanh'),
        'Activation of classifier and discriminator; tanh is a tempered sigmoid.',
    )  # fmt: skip
    taps: str = plain(
        'conv2',
        'Features of an image that DPAGG sums, joined by commas; '
        'docs/explanation/algorithm.md lists them.',
    )
    axes: str = one_of(
        'none', ('none', 'few', 'all'),
        'When taps of many columns (contrast, wavelet, texture, leaves, perceptual, kinds) '
        'are read along the principal axes of random pictures, which shortens the noise: '
        'never (none); with few records, that is num_examples times epsilon below 5000 a '
        'class (few); always (all).',
    )  # fmt: skip
    mirrored: bool = plain(
        False,
        'Whether an image mirrored from left to right is of the same class and as likely, '
        'as of faces, not of letters: a labeller reads both, and half of the released '
        'images are mirrored.',
    )
    warm_start: str = image_source(
        '',
        'Source of PUBLIC images on which all of DPAF runs first, without noise, such '
        'as npz:/path; naming it is your word that they are public. Empty: none.',
    )
    warm_start_parts: str = one_of(
        'both', ('both', 'discriminator'),
        'Networks that private training takes over from warm_start: both, or the '
        'discriminator alone.',
    )  # fmt: skip
    warm_start_classes: int = at_least(
        1, 1, 'Number of classes of the public images; 1: their labels are not read.'
    )
    classifier: ClassifierConfig
    conv2: Conv2Config
    head: HeadConfig
    generator: GeneratorConfig

    @property
    def tap_names(self) -> tuple[str, ...]:
        """What DPAGG aggregates, in the order of its output."""
        return tuple(name.strip() for name in self.taps.split(','))

    @property
    def without_labeller(self) -> 'DpafConfig':
        """The same, but that nothing learns labels: all of epsilon is the aggregates'."""
        if self.classifier.private != LABELLER:
            return self
        return dataclasses.replace(
            self,
            taps=','.join(name for name in self.tap_names if name != LABELLER),
            classifier=dataclasses.replace(self.classifier, private='none'),
            generator=dataclasses.replace(self.generator, warp=0.0, warp_of_few=0.0),
        )
