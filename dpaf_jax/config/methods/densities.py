"""Methods that model the records' density: score networks, and P3GM's decoder."""

import dataclasses

from dpaf_jax.config.fields import above, at_least, between, one_of, plain
from dpaf_jax.config.methods.common import CLIP, OPTIMIZERS, SCHEDULE, SCHEDULES, ema


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
    ema_decay: float = ema(0.99)
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
    ema_decay: float = ema(0.99)
