"""Methods whose discriminator or critic is private."""

import dataclasses

from dpaf_jax.config.fields import above, at_least, between, one_of, plain
from dpaf_jax.config.methods.common import CLIP, FALLING_RATE, RATE, ema

PENALTY = 'Weight of the gradient penalty (lambda).'


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdversarialConfig:
    """The private training of a discriminator, and the generator's beside it."""

    batch_size: int = at_least(
        256, 1, 'Expected batch size of a discriminator step, in real images.'
    )
    discriminator_steps: int = at_least(
        3, 1, 'Number of discriminator steps for each generator step (n_D).'
    )
    generator_steps: int = at_least(400, 1, 'Number of generator steps of the run.')
    width: int = at_least(
        8,
        1,
        "Feature maps of the discriminator's first layer; they double from layer to "
        'layer. Noise grows with the number of parameters.',
    )
    fc_width: int = at_least(
        32, 1, "Hidden units between the discriminator's two fully connected layers."
    )
    l2_clip_norm: float = above(1.0, 0.0, CLIP)
    discriminator_learning_rate: float = above(1e-3, 0.0, RATE.format('discriminator'))
    generator_batch_size: int = at_least(
        256, 1, 'Batch size of a generator step, in fakes.'
    )
    generator_learning_rate: float = above(1e-3, 0.0, RATE.format('generator'))
    ema_decay: float = ema(0.98)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpGanConfig(AdversarialConfig):
    """DP-GAN: also DP-BigGAN and DP-PGGAN, by their networks and losses."""

    network: str = one_of(
        'dcgan', ('dcgan', 'biggan', 'pggan'),
        'Kind of both networks and of their loss; biggan does not use fc_width.',
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpCganConfig(AdversarialConfig):
    """DP-CGAN."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpbaWganConfig(AdversarialConfig):
    """DPBA-WGAN: the penalty, the alternation and the interval of noise scales."""

    penalty_weight: float = above(10.0, 0.0, PENALTY)
    alternate: bool = plain(
        True,
        "Whether each record's gradient is of one term, distance or penalty, which a "
        'coin picks and which counts twice; False: of both. Unused as_published.',
    )
    noise_ratio: float = between(
        2.0, 1.0, 16.0, 'Largest noise scale sigma_t, as a multiple of the smallest.'
    )
    noise_levels: int = between(
        3,
        1,
        16,
        'Number of noise scales from the smallest to the largest, of which each critic '
        'step draws one; 1: always the smallest. Unused as_published.',
    )
    cost_clip: float = above(
        1.0,
        0.0,
        "Clipping bound C on each record's gradient penalty (line 10), which "
        'as_published has in place of l2_clip_norm.',
    )
    per_label: bool = plain(
        False, 'Whether each label has networks of its own, which train in turn.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GsWganConfig(AdversarialConfig):
    """GS-WGAN: critics on disjoint records, and their penalty."""

    batch_size: int = at_least(
        100,
        1,
        'Expected number of records of each critic; there are n_D = N / batch_size '
        'critics.',
    )
    discriminator_steps: int = at_least(
        5, 1, 'Number of training steps of a critic, without noise, in each turn.'
    )
    generator_steps: int = at_least(
        400, 1, 'Number of turns of the run, each with one generator step.'
    )
    l2_clip_norm: float = above(
        1.0, 0.0, "Clipping bound C on the l2 norm of a critic's gradient by each fake."
    )
    generator_batch_size: int = at_least(
        32,
        1,
        'Number of fakes in a turn (B), by which gradients are clipped and noised.',
    )
    generator_learning_rate: float = above(1e-3, 0.0, FALLING_RATE.format('generator'))
    critics_per_turn: int = at_least(
        1,
        1,
        'Number of critics in a turn (M), whose clipped gradients are added up; '
        'as_published it is 1.',
    )
    cell: int = at_least(
        1,
        1,
        'Factor by which images are reduced for the critics; the generator makes '
        'images of that size, and they are enlarged.',
    )
    penalty_weight: float = above(10.0, 0.0, PENALTY)
