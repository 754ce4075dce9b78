"""The plan of one noisy sum of embedded records.

Sensitivity. A record adds one row of norm at most 1 (by construction, and clipped to 1 all
the same) to its class's row of the table. Emptying it moves the table by at most 1,
replacing it by any other by at most 2. The papers state epsilon for replacing, with the
number of records public as here, so `as_published` runs with twice the noise and is
certified too: for neighbours that include ours.
"""

import dataclasses

from dpaf_jax.config import Config
from dpaf_jax.config.methods import EmbeddingConfig
from dpaf_jax.privacy.budgets import plan_of_one
from dpaf_jax.privacy.plan import REPLACE_ONE, Mechanism, PrivacyPlan
from dpaf_jax.runtime.errors import UserError

EMBEDDING = 'embedding'
ROW_BOUND = 1.0


def settings_of(config: Config) -> EmbeddingConfig:
    """The fields of the method that runs."""
    return getattr(config, config.method)


def one_release(config: Config, num_examples: int) -> PrivacyPlan:
    """One Gaussian on all records; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit each other, or the budget.
    """
    _check_batch(config)
    replaces = config.privacy.as_published
    embedding = Mechanism.bounded_sum(
        EMBEDDING,
        'sum of feature rows of norm 1 by class'
        + (', with one replaced' if replaces else ''),
        config.privacy,
        num_examples,
        batch_size=num_examples,
        l2_sensitivity=ROW_BOUND * (1 + replaces),
    )
    made = plan_of_one(embedding, config.privacy, num_examples)
    return dataclasses.replace(made, neighbors=REPLACE_ONE) if replaces else made


def _check_batch(config: Config) -> None:
    size, k = settings_of(config).batch_size, config.data.num_classes
    if size < 2 * k:
        problem = f'is {size}, for {k} classes'
        remedy = f'Use at least {2 * k}: two images of each class'
        raise UserError(f'config.{config.method}.batch_size', problem, remedy)
