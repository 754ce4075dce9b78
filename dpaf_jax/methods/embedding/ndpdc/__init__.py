"""NDPDC: a small set of images fitted to noisy sums of random features (Zheng and Li 2023).

"Differentially private dataset condensation", its non-linear method. Step m draws a random
network and one change of all images alike by public coins, and the records of a Poisson
sample. Each record's features are clipped to norm 1 and added to its class; the sums get
Gaussian noise, once, and stay. All that follows is post-processing: a set of images is moved
until the means of its features, by the same networks, are the noisy ones. The images are the
release.

Sensitivity. A record that is drawn adds one row of norm at most 1 to one row of the table
[K, F]: emptying it moves the table by at most 1, whatever the network. Steps are charged one
by one, as Poisson-sampled Gaussians; neither the plan nor the divisors know how many records
a class has.
"""

from typing import Any

from dpaf_jax.config import Config
from dpaf_jax.methods.embedding.ndpdc.aggregate import AggregatePhase
from dpaf_jax.methods.embedding.ndpdc.condensation import AGGREGATE, Condensation
from dpaf_jax.methods.embedding.ndpdc.condense import CondensePhase
from dpaf_jax.methods.embedding.plan import ROW_BOUND
from dpaf_jax.privacy.budgets import check_batch_size, plan_of_one
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.run import Run


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Returns:
        One Poisson-sampled Gaussian mechanism, the same in both modes.

    Raises:
        UserError: the settings do not fit N or the images, or the budget.
    """
    settings = config.ndpdc
    _check(config, num_examples)
    aggregate = Mechanism.bounded_sum(
        AGGREGATE,
        'sum of rows of random features, of norm 1, by class',
        config.privacy,
        num_examples,
        batch_size=settings.batch_size,
        l2_sensitivity=ROW_BOUND,
        steps=settings.aggregates,
    )
    return plan_of_one(aggregate, config.privacy, num_examples)


def train(run: Run) -> Any:
    """Releases the aggregates, fits the images to them; returns the images' average.

    Guarantee: `condense` reads the noisy aggregates and public coins alone.
    """
    method = Condensation(run.config, run.plan)
    released = run.train(AggregatePhase(run, method))
    return run.train(CondensePhase(run, method, released)).ema_params


def _check(config: Config, num_examples: int) -> None:
    settings, side = config.ndpdc, config.data.image_size
    check_batch_size('config.ndpdc.batch_size', settings.batch_size, num_examples)
    if side < 2**settings.depth:
        problem = f'is {settings.depth}, more than a side of {side} can be halved'
        raise UserError('config.ndpdc.depth', problem, 'Lower it')
    if side < 2 * settings.parts:
        problem = f'is {settings.parts}, for a side of {side} pixels'
        raise UserError('config.ndpdc.parts', problem, 'Lower it')
