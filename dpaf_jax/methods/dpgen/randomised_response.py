"""DPGEN's sanitiser as printed (its section 4.2, steps S1 and S2). It protects nothing.

Each private image x gets a noisy x~ = x + sigma z and a direction d = (x~ - x^r) / sigma^2,
where x^r is x itself or, by randomised response, another private image (equation 8). The
pairs (x~, d) are taken for private and trained on. Yet x^r = x~ - sigma^2 d: every pair
contains a private image as it is. docs/explanation/dpgen.md says where the proof fails.
"""

import math
from typing import NamedTuple

import numpy as np

POOL = 1024  # other images that are looked at for candidates, at most


class Sanitised(NamedTuple):
    """The 'sanitised' set D of the paper, an entry per private image.

    Attributes:
        noisy: [N, H, W, C] float32.
        direction: [N, H, W, C] float32.
        sigma: [N] float32.
        labels: [N] int32, as they are: the paper says nothing about them.
    """

    noisy: np.ndarray
    direction: np.ndarray
    sigma: np.ndarray
    labels: np.ndarray

    def recovered(self) -> np.ndarray:
        """[N, H, W, C]: the private image in each pair, x^r = x~ - sigma^2 d."""
        variance = np.square(self.sigma)[:, None, None, None]
        return self.noisy - variance * self.direction


def keep_probability(epsilon: float, candidates: int) -> float:
    """Equation 8: the chance of H to answer with the image itself."""
    return 1 / (1 + (candidates - 1) * math.exp(-epsilon))


def sanitise(
    images: np.ndarray,
    labels: np.ndarray,
    levels: tuple[float, ...],
    epsilon: float,
    candidates: int,
    threshold: float,
    rng: np.random.Generator,
) -> Sanitised:
    """Steps S1 and S2.

    Args:
        images: [N, H, W, C] float32 in [-1, 1], private.
        labels: [N] int32.
        levels: of the noise, one drawn for each image.
        epsilon: claimed, for each image.
        candidates: k, at most N.
        threshold: beta.
        rng: of everything drawn.
    """
    number = len(images)
    sigma = rng.choice(np.asarray(levels, np.float32), size=number)
    noise = rng.standard_normal(images.shape, np.float32)
    noisy = images + sigma[:, None, None, None] * noise
    chosen = np.arange(number)
    keeps = rng.random(number) < keep_probability(epsilon, candidates)
    for i in map(int, np.flatnonzero(~keeps)):
        others = _candidates(i, noisy[i], images, sigma, candidates, threshold, rng)
        chosen[i] = rng.choice(others)
    variance = np.square(sigma)[:, None, None, None]
    return Sanitised(noisy, (noisy - images[chosen]) / variance, sigma, labels)


def _candidates(
    own: int,
    noisy: np.ndarray,
    images: np.ndarray,
    sigma: np.ndarray,
    candidates: int,
    threshold: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Finds k - 1 indices beside `own`: within the threshold, at random.

    Where fewer are, the nearest by the same measure: the paper asks for |X| = k.
    """
    size = min(POOL, len(images) - 1)
    pool = rng.choice(len(images) - 1, size=size, replace=False)
    pool += pool >= own
    # As printed: the largest difference, not the largest magnitude; sigma of the other.
    far = np.max((noisy - images[pool]) / sigma[pool, None, None, None], axis=(1, 2, 3))
    near = np.flatnonzero(far <= threshold)
    if len(near) < candidates - 1:
        near = np.argsort(far, kind='stable')
    return pool[near[: candidates - 1]]
