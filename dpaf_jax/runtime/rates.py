"""Confidence limits of a rate of which some events were counted (Clopper and Pearson 1934)."""

import numpy as np
from scipy import special


def clopper_pearson(
    count: np.ndarray | int | float, number: int, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of a rate of which `count` in `number` were seen.

    Args:
        count: of one rate, or of several.
        number: of trials.
        alpha: each end is wrong with a chance of at most alpha / 2.

    Returns:
        (low, high), float64 of the shape of `count`.

    Example:
        >>> low, high = clopper_pearson(0, 1000, 0.05)
        >>> float(low), round(float(high), 5)  # (1 - high)^1000 = 0.025
        (0.0, 0.00368)
    """
    seen = np.asarray(count, float)
    tails = alpha / 2, 1 - alpha / 2
    # The inverse is not defined at the ends, where the limits are 0 and 1.
    low = special.betaincinv(np.maximum(seen, 1e-9), number - seen + 1, tails[0])
    high = special.betaincinv(seen + 1, np.maximum(number - seen, 1e-9), tails[1])
    return np.where(seen > 0, low, 0.0), np.where(seen < number, high, 1.0)
