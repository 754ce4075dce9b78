"""A third accountant: bounds on epsilon from below and above, without dp-accounting.

For `verify` and the tests; no plan is made with it. It shares no code and no numerical
method with the two accountants that a plan states. Float64, NumPy and SciPy only.

Model. One record against an empty one (zero-out, REPLACE_SPECIAL). A Gaussian query of
noise multiplier s on a Poisson sample of rate q is dominated by the pair

    P = (1 - q) N(0, s^2) + q N(1, s^2),    Q = N(0, s^2),

in both directions (Zhu, Dong and Wang 2022, "Optimal accounting of differential privacy
via characteristic function", theorem 11), and a composition by the products of the pairs.
With the privacy loss S = sum of log P/Q under P (or of log Q/P under Q),

    delta(epsilon) = E[max(0, 1 - exp(epsilon - S))],

the larger of the two directions. Where every q is 1 this has a closed form (Balle and Wang
2018, theorem 8). Otherwise S is found on a grid, in the line of Gopi, Lee and Wutschitz 2021,
"Numerical composition of differential privacy". What is done to S on the way, and its price:

- each loss is rounded to the nearest of a grid of step h, and the sum moved by the exact
  mean of the rounding errors. These are independent, so by Hoeffding the sum is off by more
  than t = h sqrt(n log(2/eta) / 2) with probability at most eta: epsilon -+ t, delta +- eta;
- the FFT wraps sums beyond the window [-a, a] around. For integer orders the moments of
  the loss have a closed form (Mironov, Talwar and Zhang 2019, section 3.3). It bounds both
  tails in both directions, for the reverse pair has the smaller divergence (their theorem
  5) and a lower tail is at most the other direction's upper tail. Charged to delta, as is
  the mass of single losses beyond the window;
- float64: the transform's n-th power has an absolute error near n * 1e-16, which shows in
  delta. It is charged as n * 4e-15 (the tests measure it), so a delta below about
  n * 1e-13 is beyond this method. Plans are at 1e-5 and 1e-6, with n up to 1e5.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import fft, optimize, signal, special

SLACK = 1e-6  # share of delta for Hoeffding, and again for what the window cuts
ROUND_OFF = 4e-15  # of delta per step
WIDTH = 0.005  # the bounds are brought this close, relatively, by finer grids ...
MAX_POINTS = 2**22  # ... up to this one
ORDERS = [round(2 ** (k / 2)) for k in range(2, 31)]


@dataclasses.dataclass(frozen=True)
class SampledGaussian:
    """A Gaussian query on Poisson samples, repeated.

    Attributes:
        noise_multiplier: standard deviation over sensitivity, above 0.
        sampling_prob: in (0, 1].
        steps: at least 1.
    """

    noise_multiplier: float
    sampling_prob: float
    steps: int


@dataclasses.dataclass(frozen=True)
class Laplace:
    """A query with Laplace noise on all records, repeated: pure DP.

    Attributes:
        noise_multiplier: scale over the sensitivity in l1, above 0.
        steps: at least 1.
    """

    noise_multiplier: float
    steps: int


class Bounds(NamedTuple):
    """The exact epsilon lies in [lower, upper]."""

    lower: float
    upper: float


Query = SampledGaussian | Laplace


def queries_of(event: Any, steps: int = 1) -> list[Query]:
    """Reads the `dp_event` of privacy.json as plain JSON.

    Raises:
        ValueError: it is made of other than Poisson-sampled Gaussians and Laplace noise.
    """
    match event:
        case {'class': 'ComposedDpEvent', 'events': [*events], **rest} if not rest:
            return [query for each in events for query in queries_of(each, steps)]
        case {
            'class': 'SelfComposedDpEvent',
            'event': once,
            'count': int(n),
            **rest,
        } if not rest and n > 0:
            return queries_of(once, steps * n)
        case {
            'class': 'PoissonSampledDpEvent',
            'sampling_probability': float(q) | int(q),
            'event': {
                'class': 'GaussianDpEvent',
                'noise_multiplier': float(s) | int(s),
            },
        } if 0 < q <= 1 and s > 0 and len(event) == 3 and len(event['event']) == 2:
            return [SampledGaussian(s, q, steps)]
        case {'class': 'GaussianDpEvent', 'noise_multiplier': float(s) | int(s)} if (
            s > 0 and len(event) == 2
        ):
            return [SampledGaussian(s, 1.0, steps)]
        case {'class': 'LaplaceDpEvent', 'noise_multiplier': float(b) | int(b)} if (
            b > 0 and len(event) == 2
        ):
            return [Laplace(b, steps)]
    raise ValueError(f'not Poisson-sampled Gaussians: {str(event)[:200]}')


def epsilon_bounds(queries: Sequence[Query], delta: float) -> Bounds:
    """Epsilon of the composition of all queries.

    Laplace queries are pure DP: to the upper bound they add their epsilon, to the lower one
    nothing (basic composition; without Gaussians they are all of it, at most).

    Args:
        queries: of the whole run; may be empty.
        delta: at which epsilon is read; see above for how small it may be.

    Returns:
        Bounds that are equal where no query is sampled, else at most `WIDTH` apart if
        `MAX_POINTS` suffice: seconds for plans of 1e4 steps.

    Raises:
        ValueError: delta is too small for float64.
    """
    pure = math.fsum(
        m.steps / m.noise_multiplier for m in queries if isinstance(m, Laplace)
    )
    gaussian = [m for m in queries if isinstance(m, SampledGaussian)]
    lower, upper = _gaussian_bounds(gaussian, delta)
    return Bounds(lower, upper + pure)


def _gaussian_bounds(queries: Sequence[SampledGaussian], delta: float) -> Bounds:
    mu_squared = math.fsum(
        m.steps / m.noise_multiplier**2 for m in queries if m.sampling_prob == 1
    )
    sampled = [m for m in queries if m.sampling_prob < 1]
    if not sampled:
        exact = gaussian_epsilon(math.sqrt(mu_squared), delta)
        return Bounds(exact, exact)
    if mu_squared:  # Gaussians on all records compose to one
        sampled.append(SampledGaussian(mu_squared**-0.5, 1.0, 1))
    points = 2**18
    while True:
        bounds = _Composition(sampled, delta, points).bounds()
        if bounds.upper - bounds.lower <= WIDTH * bounds.upper or points >= MAX_POINTS:
            return bounds
        points *= 4


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Exact epsilon of Gaussians on all records (Balle and Wang 2018, theorem 8).

    Args:
        mu: root of the sum of steps / noise_multiplier^2.
        delta: in (0, 1).
    """

    def excess(epsilon: float) -> float:
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return float(special.ndtr(a) - np.exp(epsilon + special.log_ndtr(b))) - delta

    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    high = mu**2 / 2 + mu * math.sqrt(
        2 * math.log(1 / delta)
    )  # by zero-concentrated DP
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-12))


def log_moment(query: SampledGaussian, order: int) -> float:
    """The log of E_Q[(P/Q)^order] over all steps: (order - 1) times the Renyi divergence.

    Mironov, Talwar and Zhang 2019, section 3.3; integer orders from 2.
    """
    q, s, k = query.sampling_prob, query.noise_multiplier, np.arange(order + 1.0)
    if q == 1:
        return query.steps * order * (order - 1) / (2 * s**2)
    binomial = (
        special.gammaln(order + 1)
        - special.gammaln(k + 1)
        - special.gammaln(order - k + 1)
    )
    terms = k * math.log(q) + (order - k) * math.log1p(-q) + k * (k - 1) / (2 * s**2)
    return query.steps * float(special.logsumexp(binomial + terms))


class _Composition:
    """Sampled Gaussians on one grid of at least so many points, at one delta."""

    def __init__(self, queries: Sequence[SampledGaussian], delta: float, points: int):
        self.queries, self.delta = queries, delta
        steps = sum(m.steps for m in queries)
        deviation = math.sqrt(steps * math.log(2 / (SLACK * delta)) / 2)  # t / h
        self.half = 2 ** math.ceil(math.log2(max(points, 16 * steps))) // 2
        # Room for S, for t, and for the mean of the rounding errors.
        reach = _reach(queries, SLACK * delta)
        self.h = reach / (self.half - deviation - steps / 2 - 1)
        self.t = deviation * self.h
        self.error = 2 * SLACK * delta + ROUND_OFF * steps

    def bounds(self) -> Bounds:
        """The larger of both directions, from below and from above."""
        both = [self._direction(add) for add in (False, True)]
        return Bounds(max(b.lower for b in both), max(b.upper for b in both))

    def _direction(self, add: bool) -> Bounds:
        spectrum = np.ones(self.half + 1, complex)
        shift, error = 0.0, self.error
        for query in self.queries:
            mass = self._mass(query, add)
            values = np.arange(-self.half, self.half) * self.h
            mean = _mean_loss(query, add, self.half * self.h)
            shift += query.steps * (mean - float(mass @ values))
            error += query.steps * float(mass[0] + mass[-1])
            spectrum *= fft.rfft(fft.ifftshift(mass)) ** query.steps
        total = fft.fftshift(fft.irfft(spectrum, 2 * self.half))
        if error >= self.delta / 2:
            raise ValueError(f'delta = {self.delta:g} is too small for float64')
        losses = np.arange(-self.half, self.half) * self.h + shift
        return Bounds(
            max(0.0, _read(losses, total, self.delta + error) - self.t),
            max(0.0, _read(losses, total, self.delta - error) + self.t),
        )

    def _mass(self, query: SampledGaussian, add: bool) -> np.ndarray:
        """[2 * half] probability of each grid point; the outermost hold the tails."""
        edges = (np.arange(-self.half, self.half + 1) - 0.5) * self.h
        x = _inverse_loss(query, edges)
        x[0], x[-1] = -np.inf, np.inf
        if add:  # log Q/P falls where log P/Q rises
            return np.roll(_normal_mass(x / query.noise_multiplier)[::-1], 1)
        q, s = query.sampling_prob, query.noise_multiplier
        inside = q * _normal_mass((x - 1) / s)
        return inside if q == 1 else (1 - q) * _normal_mass(x / s) + inside


def _reach(queries: Sequence[SampledGaussian], tail: float) -> float:
    """The least a with P[|S| > a] <= tail, by Markov's inequality at integer orders.

    P[S > a] <= exp(moment - (order - 1) a) in either direction; the lower tail of one is at
    most exp(-a) times the upper tail of the other.
    """
    return min(
        (math.fsum(log_moment(m, order) for m in queries) + math.log(2 / tail))
        / (order - 1)
        for order in ORDERS
    )


def _loss(query: SampledGaussian, x: np.ndarray) -> np.ndarray:
    """The privacy loss log P/Q at x; increasing."""
    q, z = query.sampling_prob, (2 * x - 1) / (2 * query.noise_multiplier**2)
    if q == 1:
        return z
    # Close to 0 the first form keeps every digit, far out the second does not overflow.
    near = np.log1p(q * np.expm1(np.minimum(z, 1.0)))
    return np.where(z < 1, near, np.logaddexp(math.log1p(-q), math.log(q) + z))


def _inverse_loss(query: SampledGaussian, loss: np.ndarray) -> np.ndarray:
    """Where log P/Q is `loss`; -inf below its infimum log(1 - q)."""
    q, s = query.sampling_prob, query.noise_multiplier
    if q == 1:
        return s**2 * loss + 0.5
    with np.errstate(divide='ignore'):
        near = np.log1p(np.maximum(np.expm1(np.minimum(loss, 1.0)) / q, -1.0))
        far = loss - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(loss, 1.0)))
    return s**2 * np.where(loss < 1, near, far) + 0.5


def _normal_mass(z: np.ndarray) -> np.ndarray:
    """Standard normal probability between neighbours of `z`, exact in both tails."""
    tail, low, high = special.ndtr(-np.abs(z)), z[:-1], z[1:]
    below, above = tail[1:] - tail[:-1], tail[:-1] - tail[1:]
    across = 1 - tail[:-1] - tail[1:]
    return np.where(low >= 0, above, np.where(high <= 0, below, across))


def _mean_loss(query: SampledGaussian, add: bool, limit: float) -> float:
    """Mean of one step's loss, cut at +-limit.

    By the trapezoidal rule, whose error for these entire densities is exp(-2 pi d / step)
    with d = pi s^2 the distance of the loss's singularities from the real line.
    """
    q, s = query.sampling_prob, query.noise_multiplier
    step = min(s / 16, s**2 / 4)
    x = np.arange(-40 * s, 1 + 40 * s, step)
    loss = np.clip(_loss(query, x), -limit, limit)

    def density(mean: float) -> np.ndarray:
        return (
            np.exp(-(((x - mean) / s) ** 2) / 2) * step / (s * math.sqrt(2 * math.pi))
        )

    if add:
        return -float(density(0.0) @ loss)
    return float(((1 - q) * density(0.0) + q * density(1.0)) @ loss)


def _read(losses: np.ndarray, mass: np.ndarray, delta: float) -> float:
    """Epsilon at which delta(epsilon) = delta; losses rise in equal steps."""
    # From each loss on: probability, and probability weighted by exp(that loss - its own).
    # The second by recursion: exp(losses) leaves float64 beyond 709.
    fade = math.exp(-(losses[-1] - losses[0]) / (len(losses) - 1))
    positive = losses > 0
    losses, mass = losses[positive], mass[positive]
    above = np.cumsum(mass[::-1])[::-1]
    weighted = signal.lfilter([1.0], [1.0, -fade], mass[::-1])[::-1]
    beyond = np.flatnonzero(above - weighted > delta)  # delta(epsilon = each loss)
    k = beyond[-1] + 1 if len(beyond) else 0  # epsilon is in (losses[k - 1], losses[k]]
    if above[k] <= delta:
        return float(losses[k])
    if above[k] - math.exp(-losses[k]) * weighted[k] <= delta and k == 0:
        return 0.0
    return float(losses[k] + math.log((above[k] - delta) / weighted[k]))
