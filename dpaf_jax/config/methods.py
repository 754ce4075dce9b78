"""The fields of each method's own section of the config."""

import dataclasses

from dpaf_jax.config.fields import above, at_least, between, one_of, plain

OPTIMIZERS = 'adam', 'momentum', 'sgd'
SCHEDULES = 'constant', 'cosine'
SCHEDULE = 'Of the learning rate; cosine falls to 2 % at the end.'
CLIP = 'Bound on the l2 norm of one clipped gradient.'


def _ema(default: float) -> float:
    decay: float = between(
        default,
        0.0,
        0.999999,
        'Of the released moving average; 0: the last parameters.',
    )
    return decay


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """DPAF's phase 1: the classifier whose conv1, or whose judgement, is kept."""

    private: str = one_of(
        'all', ('all', 'conv1', 'labeller', 'none'),
        'What learns: all; conv1 (head random); none (conv1 random too); labeller, a '
        'linear layer on wavelets that is kept to label the synthetic images.',
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
    batch_size: int = at_least(24, 1, 'Fakes per step.')
    optimizer: str = one_of('adam', OPTIMIZERS, 'Of the generator.')
    learning_rate: float = above(2e-4, 0.0, 'Of the generator.')
    schedule: str = one_of('constant', SCHEDULES, SCHEDULE)
    ema_decay: float = _ema(0.999)
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
    epochs: float = above(5.0, 0.0, 'How often DPAGG sees an image, in expectation.')
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
    taps: str = plain('conv2', 'What DPAGG sums, joined by commas: `TAPS` in taps.py.')
    classifier: ClassifierConfig
    conv2: Conv2Config
    head: HeadConfig
    generator: GeneratorConfig

    @property
    def tap_names(self) -> tuple[str, ...]:
        """What DPAGG aggregates, in the order of its output."""
        return tuple(name.strip() for name in self.taps.split(','))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The generator's training on an embedding that was released once."""

    generator_steps: int = at_least(
        1200, 1, 'After the one noised release; they cost no epsilon.'
    )
    batch_size: int = at_least(200, 1, 'Fakes per generator step.')
    learning_rate: float = above(2e-3, 0.0, "Adam's, falling to 2 % along a cosine.")
    ema_decay: float = _ema(0.99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FourierConfig:
    """Random Fourier features; in front of the other fields, as releases have them."""

    features: int = at_least(2048, 2, 'Of the embedding: half cosines, half sines.')
    length_scales: tuple[float, ...] = plain(
        (0.3,), "Of the kernel, times sqrt(pixels); several: the kernels' mean."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpMerfConfig(EmbeddingConfig, FourierConfig):
    """DP-MERF: the features that are released once, and the generator's training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpKernelConfig(EmbeddingConfig):
    """DP-Kernel: a mean of Gaussian kernels."""

    features: int = at_least(4096, 2, 'Of the embedding: half cosines, half sines.')
    length_scales: tuple[float, ...] = plain(
        (0.1, 0.2, 0.4), 'Of the kernels, times sqrt(pixels); equal shares.'
    )
    batch_size: int = at_least(
        200, 1, 'Fakes per generator step; as_published: and expected records.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpHpConfig(EmbeddingConfig):
    """DP-HP: Hermite features of each pixel, and of a few pixels together."""

    sum_share: float = between(
        0.5, 0.0, 1.0, 'Of the sum kernel in the row; the product kernel has the rest.'
    )
    sum_order: int = between(10, 1, 200, 'C, the highest polynomial of a pixel.')
    sum_length_scale: float = above(
        0.5, 0.0, "Of a pixel's Gaussian kernel, for pixels in [-1, 1]."
    )
    product_order: int = between(3, 1, 40, 'C, the highest polynomial in a product.')
    product_length_scale: float = above(1.0, 0.0, 'As that of the sum.')
    product_pixels: int = between(2, 1, 4, 'Pixels of a product, at random places.')
    products: int = at_least(400, 1, 'So many of them; their kernels are averaged.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PearlConfig(EmbeddingConfig):
    """PEARL: frequencies of characteristic functions, and the critic that weighs them."""

    features: int = at_least(4096, 2, 'Real and imaginary parts of F / 2 frequencies.')
    length_scales: tuple[float, ...] = plain(
        (0.3,), 'Of the frequencies, times sqrt(pixels), before they are weighed.'
    )
    critic_every: int = at_least(5, 1, 'Generator steps between two of the critic.')
    critic_learning_rate: float = above(1e-4, 0.0, "Adam's, relative to the scale.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NdpdcConfig:
    """NDPDC: the aggregates that are released, and the images that are fitted to them."""

    aggregates: int = at_least(
        200, 1, 'M: noisy sums by class, each of random features of its own.'
    )
    batch_size: int = at_least(600, 1, 'Expected records of an aggregate.')
    width: int = at_least(32, 1, 'Maps of each layer of a random network ...')
    depth: int = at_least(
        2, 1, '... and its layers, of which each halves the side of an image.'
    )
    images_per_class: int = at_least(
        20, 1, 'As the papers count: in pixels, so many whole images ...'
    )
    parts: int = between(
        1, 1, 4, '... each cut into parts x parts images that are held small (PEA: 2).'
    )
    steps: int = at_least(
        1000, 1, 'On the images, an aggregate each; they cost no epsilon.'
    )
    learning_rate: float = above(
        0.05, 0.0, "Adam's, of pixels in [-1, 1], falling to 2 % along a cosine."
    )
    ema_decay: float = _ema(0.99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpSinkhornConfig:
    """DP-Sinkhorn: the loss between fakes and records, and its sanitised gradient."""

    batch_size: int = at_least(50, 2, 'Expected records per step, and fakes.')
    generator_steps: int = at_least(1000, 1, 'Each has a draw of records of its own.')
    l2_clip_norm: float = above(0.5, 0.0, 'C, of the gradient by all fakes as one.')
    cell: int = at_least(
        1, 1, 'Fakes and records are compared by means over so many pixels squared.'
    )
    blur: float = above(0.05, 0.0, 'Weight of the entropy; small: optimal transport.')
    l1_weight: float = at_least(1.0, 0.0, 'm, of l1 beside squared l2 in the cost.')
    label_scale: float = above(
        15.0, 0.0, 'Of one-hot labels, beside pixels in [-1, 1].'
    )
    debias_share: float = between(
        0.2,
        0.0,
        1.0,
        'Of the fakes: fresh ones on the other side of the debiasing term.',
    )
    learning_rate: float = above(5e-4, 0.0, "Adam's, falling to 2 % along a cosine.")
    ema_decay: float = _ema(0.99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class P3gmConfig:
    """P3GM: the fixed encoder, its mixture, and the decoder's training."""

    dims: int = at_least(
        20, 1, "d', principal directions that an image is projected to."
    )
    row_norm: float = above(
        0.5, 0.0, 'Images in [0, 1] are clipped to it, times the root of their pixels.'
    )
    code_norm: float = above(
        1.3, 0.0, 'Projections are clipped to it, times the root of their number.'
    )
    width: int = at_least(
        100, 1, "Hidden units of the decoder's two layers: noise counts parameters."
    )
    batch_size: int = at_least(256, 1, 'Expected images per step of the decoder.')
    steps: int = at_least(400, 1, 'DP-SGD steps of decoder and encoder variance.')
    l2_clip_norm: float = above(1.0, 0.0, CLIP)
    learning_rate: float = above(2e-3, 0.0, "Adam's, falling to 2 % along a cosine.")
    ema_decay: float = _ema(0.99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdversarialConfig:
    """The private training of a discriminator, and the generator's beside it."""

    batch_size: int = at_least(256, 1, 'Expected real images per discriminator step.')
    discriminator_steps: int = at_least(3, 1, 'n_D, for each generator step.')
    generator_steps: int = at_least(400, 1, 'Generator steps of the run.')
    width: int = at_least(
        8, 1, "The discriminator's, as networks.width: noise counts parameters."
    )
    fc_width: int = at_least(
        32, 1, 'Hidden units between its two fully connected layers.'
    )
    l2_clip_norm: float = above(1.0, 0.0, CLIP)
    discriminator_learning_rate: float = above(1e-3, 0.0, "Adam's.")
    generator_batch_size: int = at_least(256, 1, 'Fakes per generator step.')
    generator_learning_rate: float = above(1e-3, 0.0, "Adam's.")
    ema_decay: float = _ema(0.98)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpGanConfig(AdversarialConfig):
    """DP-GAN."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpCganConfig(AdversarialConfig):
    """DP-CGAN."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpbaWganConfig(AdversarialConfig):
    """DPBA-WGAN: the penalty, the alternation and the interval of noise scales."""

    penalty_weight: float = above(10.0, 0.0, 'lambda, of the gradient penalty.')
    alternate: bool = plain(True, 'A coin picks the term of each record; false: both.')
    noise_ratio: float = between(
        2.0, 1.0, 16.0, 'sigma_t lies between the least and so many times it ...'
    )
    noise_levels: int = between(
        3, 1, 16, '... on a grid of so many values; 1: the least at every step.'
    )
    cost_clip: float = above(1.0, 0.0, 'as_published: C of Delta = 2C/B in line 10.')
    per_label: bool = plain(False, 'A model for each label, in turn.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class GsWganConfig(AdversarialConfig):
    """GS-WGAN: critics on disjoint records, and their penalty."""

    batch_size: int = at_least(
        100, 1, 'Records behind each critic: n_D = N / batch_size.'
    )
    discriminator_steps: int = at_least(5, 1, 'Plain steps of a critic in each turn.')
    generator_steps: int = at_least(400, 1, 'Turns of the run.')
    l2_clip_norm: float = above(1.0, 0.0, 'C, of the gradient by each fake.')
    generator_batch_size: int = at_least(
        32, 1, 'B, fakes whose gradients are noised in a turn.'
    )
    penalty_weight: float = above(10.0, 0.0, 'lambda, of the gradient penalty.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpgenConfig:
    """DPGEN: score network, training and sampler."""

    width: int = at_least(
        16, 1, 'Maps at the finest scale; doubles from scale to scale ...'
    )
    max_width: int = at_least(128, 1, '... up to this.')
    scales: int = at_least(
        2, 1, 'Of the network, each half the side of the one before.'
    )
    patch: int = at_least(2, 1, 'Pixels along a side of a cell of the finest scale.')
    sigma_max: float = above(
        10.0, 0.0, 'Noise levels fall geometrically from this public constant ...'
    )
    sigma_min: float = above(0.1, 0.0, '... to this, for images in [-1, 1].')
    num_levels: int = at_least(14, 2, 'Noise levels.')
    batch_size: int = at_least(
        512, 0, 'Expected images per step; 0: all there are (q = 1).'
    )
    microbatch: int = at_least(64, 1, 'Images at a time on a device.')
    multiplicity: int = at_least(
        4, 1, '(level, noise) draws per image, averaged inside the clip.'
    )
    steps: int = at_least(150, 1, 'DP-SGD steps.')
    l2_clip_norm: float = above(1.0, 0.0, CLIP)
    optimizer: str = one_of('adam', OPTIMIZERS, 'Of the score network.')
    learning_rate: float = above(5e-3, 0.0, 'Of the score network.')
    schedule: str = one_of('cosine', SCHEDULES, SCHEDULE)
    ema_decay: float = _ema(0.99)
    label_dropout: float = between(
        0.1, 0.0, 0.999, 'Chance of a draw to train without its label.'
    )
    sampler: str = one_of(
        'heun', ('heun', 'langevin'), 'heun: deterministic flow; langevin: annealed.'
    )
    guidance: float = at_least(
        3.0, 0.0, 'Classifier-free: 1 none, above 1 towards the class.'
    )
    langevin_steps: int = at_least(5, 1, 'At each level.')
    langevin_step_size: float = above(0.2, 0.0, 'Times sigma^2.')
    candidates: int = at_least(10, 2, 'as_published: k of equation 8 ...')
    threshold: float = above(4.0, 0.0, '... and its beta.')
    warm_start: str = plain(
        '',
        'A source of PUBLIC images to train on first, without noise, such as npz:/path; '
        'your word that they are. as_published also private:<share>. Empty: none.',
    )
    warm_start_steps: int = at_least(2000, 1, 'Of `microbatch` images each.')

    @property
    def private_share(self) -> float:
        """The part of the private images that a warm start takes as they are; 0: none."""
        kind, _, share = self.warm_start.partition(':')
        return float(share) if kind == 'private' else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpdmConfig:
    """DPDM: what EDM has of its own beside section dpgen."""

    p_mean: float = plain(-1.2, 'Mean of ln sigma, the noise level in training ...')
    p_std: float = above(1.2, 0.0, '... and its standard deviation.')
    rho: float = at_least(
        7.0, 1.0, 'Samplers take more of their levels near sigma_min; 1: evenly.'
    )
    churn: float = at_least(
        0.0, 0.0, 'S_churn, fresh noise in sampling; 0: a deterministic flow.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FetaConfig:
    """FETA: what stands between sections dpaf, of the first release, and dpgen."""

    share: float = between(
        0.25, 0.01, 0.99, 'Of epsilon, that the first release takes; the rest: dpgen.'
    )
    learning_rate: float = above(
        1e-3,
        0.0,
        "On the first release's images; dpgen.learning_rate: on private ones.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataLensConfig:
    """DataLens: how teachers answer; their number and training are G-PATE's fields."""

    top_k: int = at_least(
        20, 1, 'k: places of a fake that a teacher signs, of those `cell` leaves.'
    )
    threshold: float = between(
        0.1, 0.0, 1.0, 'beta: share of teachers by which signs must prevail.'
    )
    step_size: float = above(0.3, 0.0, 'How far a fake moves, for images in [-1, 1].')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateGanConfig:
    """PATE-GAN: what is voted on, and the student; teachers have G-PATE's fields."""

    copies: int = at_least(
        10,
        1,
        'Of each fake, that teachers vote on. steps x fakes x copies set the noise.',
    )
    spread: float = at_least(
        0.5, 0.0, 'Public noise of those copies, of images in [-1, 1]; 0: as printed.'
    )
    octaves: int = at_least(
        3, 1, 'Of that noise: cells of g_pate.cell, of twice its side, ....'
    )
    relative: bool = plain(
        True,
        'Real is what is above the mean of its class to a teacher; False: as printed.',
    )
    majority: bool = plain(
        False, 'The student hears which side won, as printed, not by how much.'
    )
    variety: float = at_least(
        0.1, 0.0, "Weight of what keeps a class's images apart; 0: as printed."
    )
    remembered: int = at_least(
        30, 1, 'Steps whose noisy votes the student learns from.'
    )
    student_steps: int = at_least(
        10, 1, "Of the student before each of the generator's."
    )
    batch_size: int = at_least(100, 1, 'Of those steps.')
    width: int = at_least(
        64, 1, "Hidden units of the student's second layer; twice as many in the first."
    )
    student_learning_rate: float = above(1e-3, 0.0, "Adam's.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPateConfig:
    """G-PATE: teachers, their votes, and the student's training."""

    teachers: int = at_least(300, 1, 'n, on disjoint parts of the data.')
    batch_size: int = at_least(
        16, 1, 'Records of its part that a teacher sees at a step, in turn.'
    )
    teacher_steps: int = at_least(
        1, 1, 'Of each teacher in front of a vote; they cost no epsilon.'
    )
    width: int = at_least(32, 1, "Hidden units of a teacher's first layer ...")
    fc_width: int = at_least(16, 1, '... and of its second.')
    teacher_learning_rate: float = above(1e-3, 0.0, "Adam's.")
    steps: int = at_least(
        300, 1, 'Of the student. steps x fakes x projections votes set the noise.'
    )
    fakes: int = at_least(20, 1, 'Of a step, which the teachers vote on.')
    projections: int = at_least(10, 1, 'k, random directions of each fake.')
    cell: int = at_least(
        2, 1, 'Fakes and directions are smooth over so many pixels; 1: as printed.'
    )
    clip: float = above(
        1e-4, 0.0, 'c: a gradient along a direction is cut to [-c, c] ...'
    )
    bins: int = at_least(2, 2, '... and put into one of B bins.')
    threshold: float = between(
        0.0, 0.0, 1.0, 'Share of teachers that must agree; 0: no check, no cost.'
    )
    threshold_noise: float = between(
        3.0, 0.1, 16.0, "Noise of that check over the bins', which epsilon gives."
    )
    generator_learning_rate: float = above(
        1e-3, 0.0, "Adam's, falling to 2 % along a cosine."
    )
    ema_decay: float = _ema(0.98)
    agreement: bool = plain(
        False, 'Exact rates and the data-dependent epsilon, under nonprivate/.'
    )
