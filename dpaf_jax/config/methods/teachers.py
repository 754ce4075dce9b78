"""Methods whose teachers learn from disjoint parts of the records."""

import dataclasses

from dpaf_jax.config.fields import above, at_least, between, plain
from dpaf_jax.config.methods.common import FALLING_RATE, RATE, ema


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPateConfig:
    """G-PATE: teachers, their votes, and the student's training."""

    teachers: int = at_least(
        300, 1, 'Number of teachers (n), on disjoint parts of the data.'
    )
    batch_size: int = at_least(
        16, 1, 'Batch size of a teacher: records of its own part, which take turns.'
    )
    teacher_steps: int = at_least(
        1,
        1,
        'Number of training steps of each teacher before it votes; they cost no '
        'epsilon.',
    )
    width: int = at_least(32, 1, "Hidden units of a teacher's first layer.")
    fc_width: int = at_least(16, 1, "Hidden units of a teacher's second layer.")
    teacher_learning_rate: float = above(1e-3, 0.0, RATE.format('teachers'))
    steps: int = at_least(
        300,
        1,
        'Number of generator steps, before each of which the teachers vote. The noise '
        'grows with the number of votes: steps x fakes x projections.',
    )
    fakes: int = at_least(
        20, 1, 'Number of fakes in a step, which the teachers answer.'
    )
    projections: int = at_least(
        10,
        0,
        'Number of random directions of each fake (k), one vote each; 0: none, and a vote '
        'for each of its cells and channels.',
    )
    cell: int = at_least(
        2,
        1,
        'Side in pixels of the squares over which fakes and directions are smooth, and '
        'whose means teachers see; 1: none, as printed.',
    )
    clip: float = above(
        1e-4,
        0.0,
        "Clipping bound c on a teacher's gradient along a direction; [-c, c] is what "
        'bins divide.',
    )
    bins: int = at_least(
        2, 2, 'Number of bins (B) for a gradient along a direction; a vote is for one.'
    )
    threshold: float = between(
        0.0,
        0.0,
        1.0,
        'Share of teachers that must agree on a bin, or the fake does not move along '
        'that direction; 0: no check, at no cost.',
    )
    threshold_noise: float = between(
        3.0,
        0.1,
        16.0,
        "Noise of the check by threshold, as a multiple of the bins' noise, which "
        'follows from epsilon.',
    )
    generator_learning_rate: float = above(1e-3, 0.0, FALLING_RATE.format('generator'))
    ema_decay: float = ema(0.98)
    agreement: bool = plain(
        False,
        'Whether to write exact shares of votes, and the data-dependent epsilon, under '
        'nonprivate/.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataLensConfig:
    """DataLens: how teachers answer; their number and training are G-PATE's fields."""

    top_k: int = at_least(
        20,
        1,
        'Number of places (k) for which a teacher gives a sign, those of its largest '
        'slopes; a place is a square of side g_pate.cell in a channel.',
    )
    threshold: float = between(
        0.1,
        0.0,
        1.0,
        'Share of teachers (beta) by which one sign must outnumber the other for a '
        'place to move.',
    )
    step_size: float = above(
        0.3,
        0.0,
        "Change of a fake's pixels where teachers agree, for images in [-1, 1].",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateGanConfig:
    """PATE-GAN: what is voted on, and the student; teachers have G-PATE's fields."""

    copies: int = at_least(
        10,
        1,
        'Number of copies of each fake that teachers vote on, disturbed by public '
        'noise. The noise on votes grows with g_pate.steps x g_pate.fakes x copies.',
    )
    spread: float = at_least(
        0.5,
        0.0,
        'Standard deviation of the public noise on copies, for images in [-1, 1]; 0: '
        'none, as printed.',
    )
    octaves: int = at_least(
        3,
        1,
        'Number of octaves of the public noise: squares of side g_pate.cell, of twice '
        'that side, and so on. In tables it is 1.',
    )
    relative: bool = plain(
        True,
        'Whether a teacher calls real what looks more so than the mean image shown of '
        'its class; False: what it takes for real, as printed.',
    )
    majority: bool = plain(
        False,
        "Whether the student learns the majority's verdict, as printed; False: the "
        'noisy share of votes.',
    )
    variety: float = at_least(
        0.1,
        0.0,
        "Weight of the loss that keeps a class's images apart; 0: none, as printed.",
    )
    remembered: int = at_least(
        30, 1, 'Number of latest steps whose noisy votes the student learns from.'
    )
    student_steps: int = at_least(
        10, 1, 'Number of training steps of the student before each generator step.'
    )
    batch_size: int = at_least(
        100, 1, 'Batch size of the steps of student and generator.'
    )
    width: int = at_least(
        64, 1, "Hidden units of the student's second layer; twice as many in the first."
    )
    student_learning_rate: float = above(1e-3, 0.0, RATE.format('student'))
