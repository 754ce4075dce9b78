"""GS-WGAN's plan: what the turns of one critic cost a record.

Critics persist, so a record that one critic has seen once shapes all of that critic's
later gradients, whether or not it is drawn again: no subsampling amplifies. What bounds
its influence is that it is behind one critic alone, whose turns come by a public
round-robin: of T turns with M of n_D critics each, at most ceil(T M / n_D) are its own. In
each the record may turn every one of the critic's B clipped gradients into any other: 2C
for each image, 2C sqrt(B) for all, however many critics take the turn with it.

As published, critics take turns alone and are picked at random, and the accountant charges
T*B Gaussians amplified by 1/n_D, of sensitivity C.
"""

import math

from dpaf_jax.config import Config
from dpaf_jax.config.methods import GsWganConfig
from dpaf_jax.privacy.budgets import plan_of_one
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.smooth import gs_wgan_sampler
from dpaf_jax.runtime.errors import UserError

GRADIENT = 'gradient'
PUBLISHED_REASON = (
    'critics persist between their turns, so picking them at random does not amplify, and '
    'one record moves all gradients of a batch'
)


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Returns:
        One mechanism, of the turns of one critic.

    Raises:
        UserError: the settings do not fit N, or the budget.
    """
    wgan = config.gs_wgan
    if wgan.batch_size > num_examples:
        raise UserError(
            'config.gs_wgan.batch_size',
            f'asks for {wgan.batch_size} images behind each critic of only {num_examples}',
            'Lower it',
        )
    gs_wgan_sampler(config)  # layers, size and cell fit each other
    critics = num_critics(wgan, num_examples)
    published = config.privacy.as_published
    if not published and wgan.critics_per_turn > critics:
        raise UserError(
            'config.gs_wgan.critics_per_turn',
            f'is {wgan.critics_per_turn}, of {critics} critics',
            'Lower it, or config.gs_wgan.batch_size',
        )
    images, clip = wgan.generator_batch_size, wgan.l2_clip_norm
    sensitivity = clip if published else 2 * clip * math.sqrt(images)
    mechanism = Mechanism(
        name=GRADIENT,
        kind='clipped gradients by generated images, of one critic in its turns',
        sampling_prob=1 / critics if published else 1.0,
        l2_sensitivity=config.privacy.bound(sensitivity),
        steps=wgan.generator_steps * images
        if published
        else turns_of_one(wgan, critics, wgan.generator_steps),
        expected_batch_size=float(images),
        capacity=num_examples,
    )
    return plan_of_one(mechanism, config.privacy, num_examples, PUBLISHED_REASON)


def num_critics(wgan: GsWganConfig, num_examples: int) -> int:
    """n_D: so many that each has `batch_size` records in expectation."""
    return max(1, num_examples // wgan.batch_size)


def turns_of_one(wgan: GsWganConfig, critics: int, turns: int) -> int:
    """At most so many of the first `turns` has any critic: they go round."""
    return -(-turns * wgan.critics_per_turn // critics)
