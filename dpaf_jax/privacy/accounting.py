"""Epsilon of a composition, and the noise that meets a budget.

dp-accounting does the arithmetic, always under zero-out neighbours
(REPLACE_SPECIAL) and with its pessimistic PLD estimate, so that what is stated is
an upper bound.
"""

import copy
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import dp_accounting
from dp_accounting import pld, rdp
from scipy import optimize, stats

from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.runtime.errors import UserError

NEIGHBORING = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
PLD_GRID = 1e-4  # 1e-3 is useless near epsilon 0.1, 1e-5 changes nothing we report
# Below 0.3 the noise's finite reach shows: its delta exceeds the Gaussian mechanism's
# (noise.py; tests/privacy/test_noise_law.py).
MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER = 0.3, 1e4
# Fractional orders below 2 do not converge at high sampling rates and decide nothing.
ORDERS = [*range(2, 65), *range(72, 257, 8), 320, 384, 512, 768, 1024, 2048]


def pld_accountant() -> pld.PLDAccountant:
    """A fresh accountant of the kind whose epsilon is the headline."""
    return pld.PLDAccountant(NEIGHBORING, value_discretization_interval=PLD_GRID)


def rdp_accountant() -> rdp.RdpAccountant:
    """A fresh accountant for the second opinion."""
    return rdp.RdpAccountant(ORDERS, NEIGHBORING)


def epsilon_pld(event: dp_accounting.DpEvent, delta: float) -> float:
    """Epsilon of `event` at `delta` by privacy loss distributions.

    Guarantee: an upper bound, for zero-out neighbours.

    Args:
        event: of one record over a whole run.
        delta: in (0, 1); overflow is already taken off.

    Example:
        The subsampled Gaussian of DP-SGD: q = 0.01, noise multiplier 1, 100 steps.

        >>> once = dp_accounting.GaussianDpEvent(noise_multiplier=1.0)
        >>> step = dp_accounting.PoissonSampledDpEvent(0.01, once)
        >>> round(epsilon_pld(dp_accounting.SelfComposedDpEvent(step, 100), 1e-5), 2)
        0.72
    """
    return float(pld_accountant().compose(event).get_epsilon(delta))


def epsilon_rdp(event: dp_accounting.DpEvent, delta: float) -> float:
    """Epsilon of `event` at `delta` by Renyi DP: an upper bound, above `epsilon_pld`'s.

    Args:
        event: as for `epsilon_pld`.
        delta: as for `epsilon_pld`.

    Example:
        >>> event = dp_accounting.GaussianDpEvent(noise_multiplier=3.731)
        >>> round(epsilon_rdp(event, 1e-5), 2), round(epsilon_pld(event, 1e-5), 2)
        (1.09, 1.0)
    """
    return float(rdp_accountant().compose(event).get_epsilon(delta))


def round_up(epsilon: float) -> float:
    """To four decimals, never below the value computed."""
    return math.ceil(epsilon * 1e4) / 1e4


def overflow_probability(
    num_examples: int, prob: float, capacity: int, shared_by: int = 1
) -> float:
    """P[Bin(s(N - 1), prob) > capacity - s]: the others leave a record less than s slots.

    While they do not, one record finds room in each of the s draws that share the slots,
    and the padded draws are exact Poisson draws. The event depends on coins of the other
    records alone, so it has the same probability on neighbouring data sets and is charged
    once, to delta.

    Args:
        num_examples: N.
        prob: of one record to be drawn.
        capacity: slots.
        shared_by: s, draws that share them.

    Example:
        >>> f'{overflow_probability(60000, 24 / 60000, capacity=66):.1e}'
        '1.3e-12'
    """
    others = shared_by * (num_examples - 1)
    return float(stats.binom.sf(capacity - shared_by, others, prob))


def capacity_for(
    num_examples: int, prob: float, tail: float, shared_by: int = 1
) -> int:
    """The smallest capacity whose overflow probability is at most `tail`.

    Args:
        num_examples: N; also the capacity of one draw for prob = 1.
        prob: of one record to be drawn.
        tail: of one overflow.
        shared_by: draws that share the slots.

    Example:
        >>> capacity_for(60000, 24 / 60000, tail=1e-8)
        57
    """
    most = shared_by * num_examples
    if prob >= 1 or tail <= 0:
        return most
    found = int(stats.binom.isf(tail, shared_by * (num_examples - 1), prob))
    capacity = found + shared_by
    while overflow_probability(num_examples, prob, capacity, shared_by) > tail:
        capacity += 1
    return min(capacity, most)


def fit_capacity(
    mechanism: Mechanism, num_examples: int, overflow_delta: float
) -> Mechanism:
    """Chooses the capacity so that all draws together overflow with `overflow_delta`."""
    prob = mechanism.sampling_prob / mechanism.num_groups
    draws = mechanism.steps * mechanism.num_groups
    tail = overflow_delta / draws
    capacity = capacity_for(num_examples, prob, tail, mechanism.shared_by)
    return dataclasses.replace(mechanism, capacity=capacity)


def overflow_delta(mechanism: Mechanism, num_examples: int) -> float:
    """The delta that a mechanism's capacity costs over the whole run.

    Slots that several draws share are counted for each of the draws: a record has a draw in
    no more arrays than it has draws.
    """
    m = mechanism
    prob = m.sampling_prob / m.num_groups
    once = overflow_probability(num_examples, prob, m.capacity, m.shared_by)
    return m.steps * m.num_groups * once


def calibrate(
    mechanism: Mechanism, others: Sequence[Mechanism], epsilon: float, delta: float
) -> Mechanism:
    """Gives `mechanism` the least noise with which everything together meets epsilon.

    Args:
        mechanism: the one whose noise_multiplier is sought.
        others: mechanisms composed with it whose noise is settled.
        epsilon: target of the whole composition, above 0.
        delta: at which the composition is read.

    Returns:
        `mechanism` with its noise_multiplier, rounded up to four significant digits.

    Raises:
        UserError: no noise meets the target, because the others exceed it.

    Example:
        >>> one_release = Mechanism('dpagg', 'sum of bounded rows', 1.0, 1.0, 1, 6e4, 60000)
        >>> calibrate(one_release, (), epsilon=1.0, delta=1e-5).noise_multiplier
        3.731
    """
    unit = dataclasses.replace(mechanism, noise_multiplier=1.0)
    (settled,) = calibrate_together([unit], others, epsilon, delta)
    return settled


def calibrate_together(
    mechanisms: Sequence[Mechanism],
    others: Sequence[Mechanism],
    epsilon: float,
    delta: float,
) -> list[Mechanism]:
    """As `calibrate`, for mechanisms whose noise stands in given proportions.

    Args:
        mechanisms: their noise_multipliers are the proportions.
        others: as in `calibrate`.
        epsilon: as in `calibrate`.
        delta: as in `calibrate`.

    Returns:
        `mechanisms`, all noise_multipliers times one factor of four significant digits.

    Raises:
        UserError: no factor meets the target.
    """
    names = ', '.join(m.name for m in mechanisms)

    def scaled(factor: float) -> list[Mechanism]:
        return [
            dataclasses.replace(m, noise_multiplier=m.noise_multiplier * factor)
            for m in mechanisms
        ]

    fixed = dp_accounting.ComposedDpEvent([m.event() for m in others])

    def excess(accountant: dp_accounting.PrivacyAccountant, log_sigma: float) -> float:
        """Above 0 where too little noise: log of epsilon over its target."""
        events = [m.event() for m in scaled(math.exp(log_sigma))]
        event = dp_accounting.ComposedDpEvent(events)
        spent = copy.deepcopy(accountant).compose(event).get_epsilon(delta)
        return math.log(max(spent, 1e-9) / epsilon)

    # Renyi DP is an upper bound and cheap: it brackets, PLD finishes.
    by_rdp = functools.partial(excess, rdp_accountant().compose(fixed))
    by_pld = functools.partial(excess, pld_accountant().compose(fixed))
    low, high = math.log(MIN_NOISE_MULTIPLIER), math.log(MAX_NOISE_MULTIPLIER)
    if by_rdp(low) <= 0:
        raise UserError(
            'config.privacy.epsilon',
            f'leaves {epsilon:g} to {names}, which hardly any noise would spend',
            'Use at most about 100, or inf for a run without privacy',
        )
    upper = optimize.brentq(by_rdp, low, high, xtol=1e-3) if by_rdp(high) < 0 else high
    while by_pld(upper) > 0:
        upper += 0.05
        if upper > high:
            raise UserError(
                'config.privacy.budgets',
                f'no noise on {names} brings the total to epsilon {epsilon:g} '
                f'at delta {delta:g}',
                'Lower the fixed shares, the epochs or the batch sizes, or raise epsilon',
            )
    lower = upper - 0.3
    while by_pld(lower) <= 0:
        lower, upper = lower - 0.3, lower
    root = optimize.brentq(by_pld, lower, upper, xtol=2e-4)
    while by_pld(root) > 0:
        root += 1e-4
    return scaled(_round_up_digits(math.exp(root)))


def _round_up_digits(sigma: float) -> float:
    scale = 10 ** (math.floor(math.log10(sigma)) - 3)
    return float(f'{math.ceil(sigma / scale) * scale:.4g}')


def spent_so_far(plan: PrivacyPlan, steps: Mapping[str, int]) -> float | None:
    """An upper bound on epsilon after some of the steps, for progress lines.

    By Renyi DP, which is quick, and never above the plan's epsilon, which is what a
    run that stops early must still state.

    Args:
        plan: of the whole run.
        steps: how many steps of each mechanism have been done.

    Returns:
        Epsilon at the plan's delta; None where the plan certifies nothing.
    """
    if plan.epsilon is None:
        return None
    accountant = rdp_accountant()
    for mechanism in plan.mechanisms:
        if done := min(steps.get(mechanism.name, 0), mechanism.steps):
            accountant.compose(dataclasses.replace(mechanism, steps=done).event())
    spent = accountant.get_epsilon(plan.delta - plan.overflow_delta)
    return min(float(spent), plan.epsilon)
