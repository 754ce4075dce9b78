"""The plans of methods whose teachers answer: every answer of a run charged, in full.

A teacher sees its own part of the data at every step, so nothing is sampled and nothing
amplified. What one teacher may turn each of its answers into is the bound.
"""

import math

from dpaf_jax.config import Config
from dpaf_jax.methods.g_pate.teachers import num_directions
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.budgets import plan_of_one
from dpaf_jax.privacy.grid import NOISE_BITS
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.smooth import g_pate_sampler
from dpaf_jax.runtime.errors import UserError

VOTES = 'votes'


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """G-PATE's privacy plan of a run: every query charged; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit N, or the budget.
    """
    check(config, num_examples)
    g_pate, ratio = config.g_pate, noise_ratio(config)
    return answers_plan(
        config,
        num_examples,
        name=VOTES,
        kind='votes of teachers on disjoint parts: one histogram per fake and projection'
        + (f', and its highest bin over {ratio:g}' if ratio < math.inf else ''),
        l2_sensitivity=voting.sensitivity(ratio),
        steps=g_pate.steps * g_pate.fakes * num_directions(config),
    )


def answers_plan(
    config: Config,
    num_examples: int,
    *,
    name: str,
    kind: str,
    l2_sensitivity: float,
    steps: int,
) -> PrivacyPlan:
    """A plan of one mechanism: so many answers of teachers, each to all records.

    Args:
        config: typed and checked.
        num_examples: N, public.
        name: of the mechanism.
        kind: what is released, in words.
        l2_sensitivity: how far one teacher moves one answer.
        steps: answers of the whole run.

    Raises:
        UserError: the budget cannot be met.
    """
    answers = Mechanism(
        name=name,
        kind=kind,
        sampling_prob=1.0,
        l2_sensitivity=l2_sensitivity,
        steps=steps,
        expected_batch_size=float(num_examples),
        capacity=num_examples,
    )
    plan = plan_of_one(answers, config.privacy, num_examples)
    # The grid that fits longer noise would round a vote to nothing.
    if (noise := plan[name].noise_std) > 2**NOISE_BITS:
        raise UserError(
            'config.privacy.epsilon',
            f'asks for noise of {noise:.0f} votes, in which none is heard',
            'Raise it, or ask the teachers less often: fewer g_pate.steps or fakes',
        )
    return plan


def check(config: Config, num_examples: int) -> None:
    """UserError where there are more teachers than records, or cells do not fit layers."""
    if (teachers := config.g_pate.teachers) > num_examples:
        problem = f'is {teachers}, for {num_examples} records'
        remedy = f'Give each one at least: ask for {max(num_examples // 10, 1)}'
        raise UserError('config.g_pate.teachers', problem, remedy)
    g_pate_sampler(config)


def refuse_agreement(config: Config) -> None:
    """Raises UserError where a method is asked to watch votes that it has not."""
    if config.g_pate.agreement:
        problem = f'is True, which {config.method} does not know'
        raise UserError('config.g_pate.agreement', problem, 'Set it to False')


def noise_ratio(config: Config) -> float:
    """Of the threshold check's noise to the bins'; infinity where there is no check."""
    g_pate = config.g_pate
    return g_pate.threshold_noise if g_pate.threshold else math.inf
