"""Epsilon of a composition, by two accountants.

dp-accounting does the arithmetic, always under zero-out neighbours (REPLACE_SPECIAL) and
with its pessimistic PLD estimate, so that what is stated is an upper bound.
"""

import dataclasses
import math
from collections.abc import Mapping

import dp_accounting
from dp_accounting import pld, rdp

from dpaf_jax.privacy.plan import PrivacyPlan

NEIGHBORING = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
PLD_GRID = 1e-4
# By Renyi DP; below and above the grid is finer and coarser in proportion. Losses of many
# small steps are far below epsilon: at 0.01 a grid of 1e-4 would take three times its noise.
SMALL_EPSILON, LARGE_EPSILON = 0.5, 32
FINEST = -8  # the least power of 2 that the grid is multiplied with
# Fractional orders below 2 do not converge at high sampling rates and decide nothing.
ORDERS = [*range(2, 65), *range(72, 257, 8), 320, 384, 512, 768, 1024, 2048]


def pld_grid(epsilon_rdp: float) -> float:
    """The grid of privacy losses, from `SMALL_EPSILON` to `LARGE_EPSILON` always the same.

    dp-accounting visits its points one by one: at epsilon 600 16 million of 1e-4. Its
    estimate is pessimistic on any grid, so a coarse one states no epsilon that is too low.
    """
    if LARGE_EPSILON < epsilon_rdp < math.inf:
        return float(PLD_GRID * 2 ** math.ceil(math.log2(epsilon_rdp / LARGE_EPSILON)))
    if 0 < epsilon_rdp < SMALL_EPSILON:
        power = math.floor(math.log2(epsilon_rdp / SMALL_EPSILON))
        return float(PLD_GRID * 2.0 ** max(power, FINEST))
    return PLD_GRID


def coarseness(epsilon_rdp: float) -> float:
    """The grid of losses at this epsilon, in units of `PLD_GRID`."""
    return pld_grid(epsilon_rdp) / PLD_GRID


def pld_accountant(grid: float) -> pld.PLDAccountant:
    """A fresh accountant of the kind whose epsilon is the headline."""
    return pld.PLDAccountant(NEIGHBORING, value_discretization_interval=grid)


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
    grid = pld_grid(epsilon_rdp(event, delta))
    return float(pld_accountant(grid).compose(event).get_epsilon(delta))


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
    for mechanism in plan:
        if done := min(steps.get(mechanism.name, 0), mechanism.steps):
            accountant.compose(dataclasses.replace(mechanism, steps=done).event())
    spent = accountant.get_epsilon(plan.delta - plan.overflow_delta)
    return min(float(spent), plan.epsilon)
