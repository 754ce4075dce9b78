"""DPBA-WGAN's plan: which noise each critic step has, and what is charged for it.

A mechanism for each scale of the noise, for the steps that drew it; where each label has a
model of its own, for the steps of one class. critic.py has the steps.
"""

import math

import numpy as np

from dpaf_jax.config import Config
from dpaf_jax.config.methods import DpbaWganConfig
from dpaf_jax.privacy.budgets import check_batch_size, claimed_plan, make_joint_plan
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.runtime.errors import UserError

COST, CRITIC = 'cost', 'critic_'
PUBLISHED_REASON = (
    "noise multiplies the critic's scores or is added where it has no gradient, and "
    'nothing bounds the gradient of an example'
)
KIND = 'sum of clipped gradients, one per record with its fake and interpolate'


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Returns:
        Mechanisms 'critic_0', ..., one for each noise scale that is drawn at all;
        `as_published`, one without a guarantee and the epsilon of the paper's equation 14.

    Raises:
        UserError: the settings do not fit N, or the budget.
    """
    wgan, models = config.dpba_wgan, num_models(config)
    _check(config, num_examples)
    if is_published(config):
        return _published_plan(config, num_examples)
    counts = np.bincount(scale_of_step(wgan, models), minlength=wgan.noise_levels)
    mechanisms = [
        Mechanism(
            name=f'{CRITIC}{i}',
            kind=KIND,
            sampling_prob=_rate(config, num_examples),
            l2_sensitivity=config.privacy.bound(wgan.l2_clip_norm),
            steps=int(counts[i]),
            expected_batch_size=float(min(wgan.batch_size, num_examples / models)),
            capacity=wgan.batch_size,
            noise_multiplier=scale,
        )
        for i, scale in enumerate(noise_scales(wgan))
        if counts[i]
    ]
    return make_joint_plan(mechanisms, config.privacy, num_examples)


def _check(config: Config, num_examples: int) -> None:
    wgan, models = config.dpba_wgan, num_models(config)
    check_batch_size('config.dpba_wgan.batch_size', wgan.batch_size, num_examples)
    if wgan.generator_steps % models:
        raise UserError(
            'config.dpba_wgan.generator_steps',
            f'is {wgan.generator_steps}, which {models} models cannot share evenly',
            f'Use a multiple of {models}, or per_label = False',
        )


def critic_mechanisms(plan: PrivacyPlan) -> tuple[Mechanism, ...]:
    """Those of critic steps, from the least noise on; beside them may be a class histogram."""
    return tuple(m for m in plan if m.name == COST or m.name.startswith(CRITIC))


def num_models(config: Config) -> int:
    """How many models take turns: one for each label, or one for all."""
    return config.data.num_classes if config.dpba_wgan.per_label else 1


def _rate(config: Config, num_examples: int) -> float:
    """Of the records whose turn it is; from N and K, since sizes of classes are private."""
    asked = num_models(config) * config.dpba_wgan.batch_size / num_examples
    return min(1.0, asked)


def noise_scales(wgan: DpbaWganConfig) -> list[float]:
    """The values that sigma_t may take, over the least: geometric, public."""
    intervals = max(1, wgan.noise_levels - 1)
    return [wgan.noise_ratio ** (i / intervals) for i in range(wgan.noise_levels)]


def scale_of_step(wgan: DpbaWganConfig, models: int = 1) -> np.ndarray:
    """[T] int: which of `noise_scales` each critic step of a model has.

    All models see the same scales in the same order: a record is behind one of them, and
    is charged the same whichever that is. The coins are public and the same in every run,
    so that anybody can rebuild the plan from the config; a bit generator's raw stream does
    not change between versions.
    """
    steps = wgan.generator_steps // models * wgan.discriminator_steps
    rng = np.random.Philox(key=0).random_raw(steps)
    return (rng % np.uint64(wgan.noise_levels)).astype(np.int64)


def is_published(config: Config) -> bool:
    """Whether the paper's own steps run, without a guarantee."""
    return config.privacy.as_published and config.privacy.is_private


def _published_plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The noise that equation 14 asks for, with sensitivity 2C/B and alpha = 2, its best.

    The interval of scales begins there: the paper has one sigma in the equation.
    """
    wgan, privacy, models = config.dpba_wgan, config.privacy, num_models(config)
    steps = wgan.generator_steps // models * wgan.discriminator_steps
    rate = _rate(config, num_examples)
    composed = math.sqrt(2 * steps * math.log(1 / privacy.delta))
    cost = Mechanism(
        name=COST,
        kind="critic's cost of a batch, each term times or plus noise",
        sampling_prob=rate,
        l2_sensitivity=2 * wgan.cost_clip / wgan.batch_size,
        steps=steps,
        expected_batch_size=float(wgan.batch_size),
        capacity=wgan.batch_size,
        noise_multiplier=math.sqrt(2 * rate * composed / privacy.epsilon),
    )
    return claimed_plan(cost, privacy, num_examples, PUBLISHED_REASON)
