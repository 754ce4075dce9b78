"""Methods that model the records' density: score networks, and P3GM's decoder."""

import dataclasses

from dpaf_jax.config.fields import above, at_least, between, image_source, one_of, plain
from dpaf_jax.config.methods.common import (
    CLIP,
    FALLING_RATE,
    OPTIMIZERS,
    SCHEDULE,
    SCHEDULES,
    ema,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpgenConfig:
    """DPGEN: score network, training and sampler."""

    width: int = at_least(
        16,
        1,
        "Feature maps at the network's finest scale; they double from scale to scale, "
        'up to max_width.',
    )
    max_width: int = at_least(
        128, 1, 'Largest number of feature maps at a scale of the network.'
    )
    scales: int = at_least(
        2, 1, 'Number of scales of the network; each halves the side of the one before.'
    )
    patch: int = at_least(
        2, 1, 'Side in pixels of the squares that are one place at the finest scale.'
    )
    sigma_max: float = above(
        10.0,
        0.0,
        'Largest noise level, for images in [-1, 1]; a public constant. The sampler '
        'starts there.',
    )
    sigma_min: float = above(
        0.1,
        0.0,
        'Smallest noise level, for images in [-1, 1]; a public constant. The sampler '
        'ends there.',
    )
    num_levels: int = at_least(
        14,
        2,
        'Number of noise levels from sigma_max to sigma_min, a geometric sequence; in '
        "dpdm the sampler's alone, spaced by rho.",
    )
    batch_size: int = at_least(
        512, 0, 'Expected batch size; 0: all images at every step (q = 1).'
    )
    microbatch: int = at_least(
        64,
        1,
        'Number of images that a device computes at a time, which changes memory and '
        'speed alone; also the batch size of warm_start_steps and labeller_steps.',
    )
    multiplicity: int = at_least(
        4,
        1,
        'Number of noisy versions of an image, whose losses are averaged before its '
        'gradient is clipped.',
    )
    steps: int = at_least(150, 1, 'Number of training steps (DP-SGD).')
    l2_clip_norm: float = above(1.0, 0.0, CLIP)
    optimizer: str = one_of('adam', OPTIMIZERS, 'Optimiser of the score network.')
    learning_rate: float = above(5e-3, 0.0, 'Learning rate of the score network.')
    schedule: str = one_of('cosine', SCHEDULES, SCHEDULE)
    ema_decay: float = ema(0.99)
    label_dropout: float = between(
        0.1,
        0.0,
        0.999,
        'Probability that training shows a noisy image without its label, for '
        'guidance.',
    )
    sampler: str = one_of(
        'heun',
        ('heun', 'langevin'),
        "Sampler of images: the probability flow by Heun's steps (heun), or annealed "
        'Langevin dynamics (langevin).',
    )
    guidance: float = at_least(
        3.0,
        0.0,
        'Strength of classifier-free guidance in sampling; 1: none, above 1: more of '
        'the class, 0: labels are ignored.',
    )
    langevin_steps: int = at_least(
        5, 1, 'Number of Langevin steps at each noise level.'
    )
    langevin_step_size: float = above(
        0.2, 0.0, 'Step size of Langevin sampling, in units of sigma^2.'
    )
    candidates: int = at_least(
        10,
        2,
        'Number of images that randomised response picks from (k of equation 8), '
        'as_published alone.',
    )
    threshold: float = at_least(
        0.0,
        0.0,
        'Largest difference of a pixel, in units of sigma, at which another image is '
        'a candidate (beta of equation 8); 0: the nearest images are. as_published '
        'alone.',
    )
    labeller_steps: int = at_least(
        3000,
        1,
        'Number of training steps, of microbatch images each and without noise, of the '
        'classifier that labels samples, as_published alone.',
    )
    warm_start: str = image_source(
        '',
        'Source of PUBLIC images to train on first, without noise, such as npz:/path; '
        'naming it is your word that they are public. Empty: none. Also '
        'private:<share>, as_published alone.',
    )
    warm_start_steps: int = at_least(
        2000,
        1,
        'Number of training steps without noise, of microbatch images each: on '
        "warm_start, or on the images of FETA's first release.",
    )

    @property
    def private_share(self) -> float:
        """The part of the private images that a warm start takes as they are; 0: none."""
        kind, _, share = self.warm_start.partition(':')
        return float(share) if kind == 'private' else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpdmConfig:
    """DPDM: what EDM has of its own beside section dpgen."""

    p_mean: float = plain(
        -1.2, 'Mean of ln sigma, where sigma is the noise level in training.'
    )
    p_std: float = above(
        1.2,
        0.0,
        'Standard deviation of ln sigma, where sigma is the noise level in training.',
    )
    rho: float = at_least(
        7.0,
        1.0,
        "Exponent of the sampler's noise levels; 1: they are spaced evenly, larger: "
        'more of them are near sigma_min.',
    )
    churn: float = at_least(
        0.0,
        0.0,
        'Amount of fresh noise in sampling (S_churn); 0: none, a deterministic flow.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FetaConfig:
    """FETA: what stands between sections dpaf, of the first release, and dpgen."""

    share: float = between(
        0.25,
        0.01,
        0.99,
        "Share of epsilon that the first release (DPAF) takes; dpgen's training has "
        'the rest.',
    )
    learning_rate: float = above(
        1e-3,
        0.0,
        "Learning rate on the first release's images; on private images it is "
        'dpgen.learning_rate.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class P3gmConfig:
    """P3GM: the fixed encoder, its mixture, and the decoder's training."""

    dims: int = at_least(
        20, 1, "Number of principal directions that an image is projected to (d')."
    )
    row_norm: float = above(
        0.5,
        0.0,
        'Clipping bound on the l2 norm of an image in [0, 1], in units of the square '
        'root of the number of its pixel values.',
    )
    code_norm: float = above(
        1.3,
        0.0,
        'Clipping bound on the l2 norm of a projection, in units of the square root of '
        'dims.',
    )
    width: int = at_least(
        100,
        1,
        "Hidden units of each of the decoder's two layers. Noise grows with the "
        'number of parameters.',
    )
    batch_size: int = at_least(256, 1, "Expected batch size of the decoder's training.")
    steps: int = at_least(
        400,
        1,
        "Number of training steps (DP-SGD) of the decoder and of the encoder's "
        'variance.',
    )
    l2_clip_norm: float = above(1.0, 0.0, CLIP)
    learning_rate: float = above(2e-3, 0.0, FALLING_RATE.format('decoder'))
    ema_decay: float = ema(0.99)
