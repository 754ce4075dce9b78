"""The fields of each method's own section of the config."""

import dataclasses

from dpaf_jax.config.fields import above, at_least, between, one_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """DPAF's phase 1: the classifier whose conv1, or whose judgement, is kept."""

    private: str = one_of('all', 'conv1', 'labeller', 'none')
    unit: str = one_of('singleton', 'group')
    num_groups: int = at_least(1)
    batch_size: int = at_least(1)
    sampling_prob: float = between(0.0, 1.0)
    epochs: float = at_least(0.0)
    l2_clip_norm: float = above(0.0)
    optimizer: str = one_of('adam', 'momentum', 'sgd')
    learning_rate: float = at_least(0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv2Config:
    """DPAF's conv2*: how its private gradient is taken."""

    gradient: str = one_of('singleton', 'group', 'cotangent', 'none')
    num_groups: int = at_least(1)
    batch_size: int = at_least(1)
    l2_clip_norm: float = above(0.0)
    optimizer: str = one_of('adam', 'momentum', 'sgd')
    learning_rate: float = above(0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """DPAF's conv3* and FC*, trained on DPAGG's output."""

    optimizer: str = one_of('adam', 'momentum', 'sgd')
    learning_rate: float = above(0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """DPAF's generator: its losses and its optimiser."""

    loss_single: float = at_least(0.0)
    loss_aggregate: float = at_least(0.0)
    loss_match: float = at_least(0.0)
    loss_smooth: float = at_least(0.0)
    whitenings: int = at_least(0)
    whiten_below: float = at_least(0.0)
    batch_size: int = at_least(1)
    optimizer: str = one_of('adam', 'momentum', 'sgd')
    learning_rate: float = above(0.0)
    schedule: str = one_of('constant', 'cosine')
    ema_decay: float = between(0.0, 0.999999)
    latent_scale: float = above(0.0)
    warp: float = between(0.0, 0.5)

    @property
    def adversarial(self) -> bool:
        """Whether the discriminator's head is needed at all."""
        return self.loss_single > 0 or self.loss_aggregate > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpafConfig:
    """DPAF: schedule, aggregation and the parts."""

    batches: str = one_of('mixed', 'class_pure')
    batch_size: int = at_least(0)
    classes_per_step: int = at_least(0)
    epochs: float = above(0.0)
    asymmetry: int = at_least(1)
    n_critic: int = at_least(1)
    generator_steps: int = at_least(1)
    keep_fraction: float = between(0.01, 1.0)
    taps: str
    classifier: ClassifierConfig
    conv2: Conv2Config
    head: HeadConfig
    generator: GeneratorConfig

    @property
    def tap_names(self) -> tuple[str, ...]:
        """What DPAGG aggregates, in the order of its output."""
        return tuple(name.strip() for name in self.taps.split(','))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpMerfConfig:
    """DP-MERF: the features that are released once, and the generator's training."""

    features: int = at_least(2)
    length_scales: tuple[float, ...]
    generator_steps: int = at_least(1)
    batch_size: int = at_least(1)
    learning_rate: float = above(0.0)
    ema_decay: float = between(0.0, 0.999999)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdversarialConfig:
    """The private training of a discriminator, and the generator's beside it."""

    batch_size: int = at_least(1)
    discriminator_steps: int = at_least(1)
    generator_steps: int = at_least(1)
    width: int = at_least(1)
    fc_width: int = at_least(1)
    l2_clip_norm: float = above(0.0)
    discriminator_learning_rate: float = above(0.0)
    generator_batch_size: int = at_least(1)
    generator_learning_rate: float = above(0.0)
    ema_decay: float = between(0.0, 0.999999)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpGanConfig(AdversarialConfig):
    """DP-GAN."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpbaWganConfig(AdversarialConfig):
    """DPBA-WGAN: the penalty, the alternation and the interval of noise scales."""

    penalty_weight: float = above(0.0)
    alternate: bool
    noise_ratio: float = between(1.0, 16.0)
    noise_levels: int = between(1, 16)
    cost_clip: float = above(0.0)
    per_label: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class GsWganConfig(AdversarialConfig):
    """GS-WGAN: the critics' penalty."""

    penalty_weight: float = above(0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpgenConfig:
    """DPGEN: score network, training and sampler."""

    width: int = at_least(1)
    max_width: int = at_least(1)
    scales: int = at_least(1)
    patch: int = at_least(1)
    sigma_max: float = above(0.0)
    sigma_min: float = above(0.0)
    num_levels: int = at_least(2)
    batch_size: int = at_least(0)
    microbatch: int = at_least(1)
    multiplicity: int = at_least(1)
    steps: int = at_least(1)
    l2_clip_norm: float = above(0.0)
    optimizer: str = one_of('adam', 'momentum', 'sgd')
    learning_rate: float = above(0.0)
    schedule: str = one_of('constant', 'cosine')
    ema_decay: float = between(0.0, 0.999999)
    label_dropout: float = between(0.0, 0.999)
    sampler: str = one_of('heun', 'langevin')
    guidance: float = at_least(0.0)
    langevin_steps: int = at_least(1)
    langevin_step_size: float = above(0.0)
    candidates: int = at_least(2)
    threshold: float = above(0.0)
    warm_start: str
    warm_start_steps: int = at_least(1)

    @property
    def private_share(self) -> float:
        """The part of the private images that a warm start takes as they are; 0: none."""
        kind, _, share = self.warm_start.partition(':')
        return float(share) if kind == 'private' else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPateConfig:
    """G-PATE: teachers, their votes, and the student's training."""

    teachers: int = at_least(1)
    batch_size: int = at_least(1)
    teacher_steps: int = at_least(1)
    width: int = at_least(1)
    fc_width: int = at_least(1)
    teacher_learning_rate: float = above(0.0)
    steps: int = at_least(1)
    fakes: int = at_least(1)
    projections: int = at_least(1)
    cell: int = at_least(1)
    clip: float = above(0.0)
    bins: int = at_least(2)
    threshold: float = between(0.0, 1.0)
    threshold_noise: float = between(0.1, 16.0)
    generator_learning_rate: float = above(0.0)
    ema_decay: float = between(0.0, 0.999999)
    noisy_prior: bool
    agreement: bool
