"""Laws of noise: what a claim of Gaussian or of Laplace noise says that an audit can test."""

import dataclasses
import math
from collections.abc import Callable

import dp_accounting
import numpy as np
from scipy import stats

from dpaf_jax.privacy.plan import EVENTS


@dataclasses.dataclass(frozen=True)
class Law:
    """Of noise in units of its scale: a Gaussian's standard deviation, a Laplace law's b.

    Attributes:
        name: as in a plan.
        norm: in which the sensitivity is meant: 2 or 1.
        distribution: scipy's name.
        std: standard deviation.
        power: |noise|^power is summed to estimate the scale ...
        degrees: ... and its sum times `factor` is chi-squared, of so many degrees a value.
        factor: see above.
        rounded: whether noise stands in the middle between whole numbers
            (`class_histogram.py`).
    """

    name: str
    norm: int
    distribution: str
    std: float
    power: int
    degrees: int
    factor: int
    rounded: bool = False

    def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        """One release."""
        make: Callable[[float], dp_accounting.DpEvent] = getattr(
            dp_accounting, EVENTS[self.name]
        )
        return make(noise_multiplier)

    def continuous(self, noise: np.ndarray, scale: float) -> np.ndarray:
        """The noise; if it is rounded, spread over its cells again as the law has it.

        Noise that is not where rounding puts it becomes NaN, which no law agrees with.
        """
        if not self.rounded:
            return noise
        cell = np.abs(noise) - 0.5
        # An exponential law's excess over the lower end of a cell of width 1.
        rng = np.random.default_rng(0).random(noise.shape)
        excess = -scale * np.log1p(rng * math.expm1(-1 / scale))
        spread = np.copysign(cell + excess, noise)
        return np.where((cell >= 0) & (cell % 1 == 0), spread, np.nan)

    def tails(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[F] chances that a coordinate of [R, F] noise has so little, and so much."""
        total = self.factor * np.sum(np.abs(noise) ** self.power, axis=0)
        law = stats.chi2(self.degrees * len(noise))
        return law.cdf(total), law.sf(total)

    def scale(self, noise: np.ndarray, alpha: float) -> tuple[float, float, float]:
        """Confidence limits of the scale, and its estimate between them; 1 is claimed."""
        total = float(np.sum(np.abs(noise) ** self.power))
        low, high = (
            self.factor * total / stats.chi2.isf(tail, self.degrees * noise.size)
            for tail in (alpha / 2, 1 - alpha / 2)
        )
        made = low, total / noise.size, high
        low, middle, high = (float(x ** (1 / self.power)) for x in made)
        return low, middle, high


LAWS = {
    'gaussian': Law('gaussian', 2, 'norm', 1.0, power=2, degrees=1, factor=1),
    'laplace': Law(
        'laplace', 1, 'laplace', 2**0.5, power=1, degrees=2, factor=2, rounded=True
    ),
}
