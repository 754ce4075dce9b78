"""Methods whose teachers learn from disjoint parts of the records."""

import dataclasses

from dpaf_jax.config.fields import above, at_least, between, plain
from dpaf_jax.config.methods.common import ema


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
    ema_decay: float = ema(0.98)
    agreement: bool = plain(
        False, 'Exact rates and the data-dependent epsilon, under nonprivate/.'
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
