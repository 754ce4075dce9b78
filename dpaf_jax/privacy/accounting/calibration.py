"""The least noise with which a composition meets its epsilon."""

import copy
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Sequence

import dp_accounting
from dp_accounting import rdp
from scipy import optimize

from dpaf_jax.privacy.accounting.epsilon import (
    NEIGHBORING,
    epsilon_pld,
    pld_accountant,
    pld_grid,
)
from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.runtime.errors import UserError

# Below 0.3 the noise's finite reach shows: its delta exceeds the Gaussian mechanism's
# (noise.py; tests/privacy/test_noise_law.py).
MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER = 0.3, 1e4
PATIENCE = 5.0  # seconds before a search says that it goes on
QUIET = 600.0  # seconds before it says so again
# A search for noise begins by these, then by losses on a grid of this share of epsilon.
FEW_ORDERS = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256]
COARSE = 1e-3
STEP, TOLERANCE = 1e-2, 1e-4  # of the log of the noise
MOST_STEPS = 10


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
