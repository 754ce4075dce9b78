"""Epsilon of a composition, and the noise that meets a budget.

dp-accounting does the arithmetic, always under zero-out neighbours
(REPLACE_SPECIAL) and with its pessimistic PLD estimate, so that what is stated is
an upper bound.
"""

import bisect
import copy
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import dp_accounting
from dp_accounting import pld, rdp
from scipy import optimize, stats

from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.runtime.errors import UserError

NEIGHBORING = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
PLD_GRID = 1e-4
# By Renyi DP; below and above the grid is finer and coarser in proportion. Losses of many
# small steps are far below epsilon: at 0.01 a grid of 1e-4 would take three times its noise.
SMALL_EPSILON, LARGE_EPSILON = 0.5, 32
# Below 0.3 the noise's finite reach shows: its delta exceeds the Gaussian mechanism's
# (noise.py; tests/privacy/test_noise_law.py).
MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER = 0.3, 1e4
FINEST = -8  # the least power of 2 that the grid is multiplied with
PATIENCE = 5.0  # seconds before a search says that it goes on
QUIET = 600.0  # seconds before it says so again
# Fractional orders below 2 do not converge at high sampling rates and decide nothing.
ORDERS = [*range(2, 65), *range(72, 257, 8), 320, 384, 512, 768, 1024, 2048]
# A search for noise begins by these, then by losses on a grid of this share of epsilon.
FEW_ORDERS = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256]
COARSE = 1e-3
STEP, TOLERANCE = 1e-2, 1e-4  # of the log of the noise
MOST_STEPS = 10


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
    # By the tail itself: SciPy's inverse of it breaks down below 1e-16.
    capacities = range(shared_by, most)
    return capacities.start + bisect.bisect_left(
        capacities,
        True,
        key=lambda c: overflow_probability(num_examples, prob, c, shared_by) <= tail,
    )


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
        UserError: no noise meets the target, because the others exceed it; or less than
            `MIN_NOISE_MULTIPLIER` would.

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
        UserError: as in `calibrate`, for the least of the noise_multipliers.
    """
    names = ', '.join(m.name for m in mechanisms)
    least = min(m.noise_multiplier for m in mechanisms)
    low, high = math.log(MIN_NOISE_MULTIPLIER / least), math.log(MAX_NOISE_MULTIPLIER)
    spent = _Spending(mechanisms, others, delta)
    progress = _Progress(f'the least noise with which {names} has epsilon {epsilon:g}')

    def excess(bound: Callable[[float], float], log_factor: float) -> float:
        """Above 0 where too little noise: log of epsilon over its target."""
        found = bound(log_factor)
        progress.tell()
        return math.log(max(found, 1e-9) / epsilon)

    # All are upper bounds. The cheaper ones lead to where the finest one decides.
    by_rdp = functools.partial(excess, spent.by_rdp)
    by_pld = functools.partial(excess, spent.by_pld)
    coarse = max(COARSE * epsilon, pld_grid(epsilon))
    narrows = functools.partial(excess, functools.partial(spent.on_grid, coarse))
    if by_rdp(low) <= 0:
        raise LittleNoiseError(names, epsilon, spent.by_pld(low))
    if narrows(high) > 0:
        narrows = by_pld
    upper = optimize.brentq(by_rdp, low, high, xtol=1e-2) if by_rdp(high) < 0 else high
    near = _crossing(narrows, upper, low, high)
    if near is None:
        raise _too_much_noise(names, epsilon, spent.by_others())
    slope = (narrows(near) - narrows(near + STEP)) / STEP
    root = _least_noise(by_pld, near, slope, low)
    if root is None:
        raise LittleNoiseError(names, epsilon, spent.by_pld(low))
    return _scaled(mechanisms, _round_up_digits(math.exp(root)))


def _crossing(
    excess: Callable[[float], float], upper: float, low: float, high: float
) -> float | None:
    """Where the excess falls to 0, roughly, searched from `upper` on.

    Returns:
        It; `low` where it is below; None where it is above `high`.
    """
    while excess(upper) > 0:
        upper += 0.05
        if upper > high:
            return None
    lower = max(low, upper - 0.3)
    while lower > low and excess(lower) <= 0:
        lower, upper = max(low, lower - 0.3), lower
    if excess(lower) <= 0:
        return low
    return float(optimize.brentq(excess, lower, upper, xtol=1e-3))


def _least_noise(
    excess: Callable[[float], float], near: float, slope: float, low: float
) -> float | None:
    """The least log factor whose excess is at most 0, to within `TOLERANCE`, from near it.

    Newton steps, with a slope that another bound has told.

    Returns:
        It; None where it is below `low`.
    """
    found = max(low, near)
    for _ in range(MOST_STEPS):
        missing = excess(found) / max(slope, 1e-3)
        if -TOLERANCE <= missing <= 0:
            return found
        if found == low and missing < 0:
            return None
        found = max(low, found + missing + TOLERANCE / 2)
    while excess(found) > 0:  # where the noise hardly counts beside the others'
        found += STEP
    return found


class _Spending:
    """Epsilon at delta, by the log of the factor that noise multipliers are scaled with."""

    def __init__(
        self, mechanisms: Sequence[Mechanism], others: Sequence[Mechanism], delta: float
    ):
        self._mechanisms, self._delta = mechanisms, delta
        self._fixed = dp_accounting.ComposedDpEvent([m.event() for m in others])
        self._accountants: dict[float | None, dp_accounting.PrivacyAccountant] = {}
        # Each computed once: a search asks for its ends again.
        self._known: dict[tuple[float | None, float], float] = {}

    def by_rdp(self, log_factor: float) -> float:
        """At few orders: higher than at all."""
        return self.on_grid(None, log_factor)

    def by_pld(self, log_factor: float) -> float:
        """As it will be stated, or a little higher."""
        return self.on_grid(pld_grid(self.by_rdp(log_factor)), log_factor)

    def on_grid(self, grid: float | None, log_factor: float) -> float:
        """By PLD; None: by Renyi DP."""
        at = grid, log_factor
        if at not in self._known:
            self._known[at] = self._spent(grid, log_factor)
        return self._known[at]

    def by_others(self) -> float:
        """What those spend whose noise is settled."""
        return epsilon_pld(self._fixed, self._delta)

    def _spent(self, grid: float | None, log_factor: float) -> float:
        if grid not in self._accountants:
            quick = rdp.RdpAccountant(FEW_ORDERS, NEIGHBORING)
            fresh = quick if grid is None else pld_accountant(grid)
            self._accountants[grid] = fresh.compose(self._fixed)
        scaled = _scaled(self._mechanisms, math.exp(log_factor))
        event = dp_accounting.ComposedDpEvent([m.event() for m in scaled])
        accountant = copy.deepcopy(self._accountants[grid])
        return float(accountant.compose(event).get_epsilon(self._delta))


class _Progress:
    """One line for people who wait, whatever the number of searches; quick ones print none."""

    quiet_until = -math.inf  # all of them together

    def __init__(self, what: str):
        self._what, self._patient_until = what, time.monotonic() + PATIENCE

    def tell(self) -> None:
        now = time.monotonic()
        if now > max(self._patient_until, _Progress.quiet_until):
            print(f'Looking for {self._what}.', file=sys.stderr, flush=True)
            _Progress.quiet_until = now + QUIET


def _scaled(mechanisms: Sequence[Mechanism], factor: float) -> list[Mechanism]:
    return [
        dataclasses.replace(m, noise_multiplier=m.noise_multiplier * factor)
        for m in mechanisms
    ]


class LittleNoiseError(UserError):
    """Epsilon is so large that its noise would have no proven law.

    Args:
        names: of the mechanisms.
        epsilon: that was asked for.
        most: that can be asked for, rounded down here to three digits.
    """

    def __init__(self, names: str, epsilon: float, most: float):
        self.names = names
        scale = 10.0 ** (math.floor(math.log10(max(most, 1e-9))) - 2)
        super().__init__(
            'config.privacy.epsilon',
            self.problem_at(epsilon),
            f'Ask for {math.floor(most / scale + 1e-9) * scale:.3g} at most',
        )

    def problem_at(self, epsilon: float) -> str:
        """What is wrong, where so much was asked for."""
        return (
            f'is {epsilon:g}, with which the noise_multiplier of {self.names} would be below '
            f'{MIN_NOISE_MULTIPLIER}, the least whose law is proven'
        )


def _too_much_noise(names: str, epsilon: float, by_others: float) -> UserError:
    if by_others >= epsilon:
        return UserError(
            'config.privacy.budgets',
            f'no noise on {names} brings the total to epsilon {epsilon:g}: the others spend '
            f'{by_others:.3g}',
            'Lower their shares, or raise epsilon',
        )
    return UserError(
        'config.privacy.epsilon',
        f'leaves so little of {epsilon:g} to {names} that its noise_multiplier would be above '
        f'{MAX_NOISE_MULTIPLIER:g}, which drowns everything',
        'Raise it, or take fewer steps',
    )


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
    for mechanism in plan:
        if done := min(steps.get(mechanism.name, 0), mechanism.steps):
            accountant.compose(dataclasses.replace(mechanism, steps=done).event())
    spent = accountant.get_epsilon(plan.delta - plan.overflow_delta)
    return min(float(spent), plan.epsilon)
