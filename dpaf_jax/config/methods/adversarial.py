"""Methods whose discriminator or critic is private."""

import dataclasses

from dpaf_jax.config.fields import above, at_least, between, one_of, plain
from dpaf_jax.config.methods.common import CLIP, ema


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
    ema_decay: float = ema(0.98)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpGanConfig(AdversarialConfig):
    """DP-GAN: also DP-BigGAN and DP-PGGAN, by their networks and losses."""

    network: str = one_of(
        'dcgan', ('dcgan', 'biggan', 'pggan'),
        'Both networks, and their loss. biggan has no fc_width.',
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpCganConfig(AdversarialConfig):
    """DP-CGAN."""

    network = 'dcgan'  # no field: its loss takes reals and fakes apart


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
    critics_per_turn: int = at_least(
        1, 1, 'M, whose gradients are added up. As published each is alone.'
    )
    cell: int = at_least(
        1, 1, 'Critics see images so many times smaller; fakes are enlarged from there.'
    )
    penalty_weight: float = above(10.0, 0.0, 'lambda, of the gradient penalty.')
