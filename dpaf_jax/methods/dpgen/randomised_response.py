"""DPGEN's sanitiser as printed (its section 4.2, steps S1 and S2). It protects nothing.

Each private image x gets a noisy x~ = x + sigma z and a direction d = (x~ - x^r) / sigma^2,
where x^r is x itself or, by randomised response, another private image (equation 8). The
pairs (x~, d) are taken for private and trained on. Yet x^r = x~ - sigma^2 d: every pair
contains a private image as it is. docs/explanation/dpgen.md says where the proof fails, and
which other images the print may mean.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

CHUNK = 512  # noisy images whose distances to all images are computed at a time
POOL = 1024  # other images that are looked at where there is a threshold, at most


class Sanitised(NamedTuple):
    """The 'sanitised' set D of the paper, an entry per private image. It has no labels.

    Attributes:
        noisy: [N, H, W, C] float32.
        direction: [N, H, W, C] float32.
        sigma: [N] float32.
    """

    noisy: np.ndarray
    direction: np.ndarray
    sigma: np.ndarray

    def recovered(self) -> np.ndarray:
        """[N, H, W, C]: the private image in each pair, x^r = x~ - sigma^2 d."""
        variance = np.square(self.sigma)[:, None, None, None]
        return self.noisy - variance * self.direction


def keep_probability(epsilon: float, candidates: int) -> float:
    """Equation 8: the chance of H to answer with the image itself."""
    return 1 / (1 + (candidates - 1) * math.exp(-epsilon))


def sanitise(
    images: np.ndarray,
    levels: tuple[float, ...],
    epsilon: float,
    candidates: int,
    threshold: float,
    rng: np.random.Generator,
) -> Sanitised:
    """Steps S1 and S2.

    Args:
        images: [N, H, W, C] float32 in [-1, 1], private.
        levels: of the noise, one drawn for each image.
        epsilon: claimed, for each image.
        candidates: k, from 2 to N: an image, and the others that may stand for it.
        threshold: beta, within which the others lie, found at random; 0: they are the
            nearest ones of all.
        rng: of everything drawn.
    """
    number = len(images)
    sigma = rng.choice(np.asarray(levels, np.float32), size=number)
    noise = rng.standard_normal(images.shape, np.float32)
    noisy = images + sigma[:, None, None, None] * noise
    chosen = np.arange(number)
    keeps = rng.random(number) < keep_probability(epsilon, candidates)
    own = np.flatnonzero(~keeps)
    if threshold:
        for i in map(int, own):
            others = _within(i, noisy[i], images, sigma, candidates, threshold, rng)
            chosen[i] = rng.choice(others)
    else:
        which = rng.integers(candidates - 1, size=(len(own), 1))
        others = nearest(noisy, images, own, candidates - 1)
        chosen[own] = np.take_along_axis(others, which, axis=1)[:, 0]
    variance = np.square(sigma)[:, None, None, None]
    return Sanitised(noisy, (noisy - images[chosen]) / variance, sigma)


def nearest(
    noisy: np.ndarray, images: np.ndarray, own: np.ndarray, number: int
) -> np.ndarray:
    """The images that are nearest to noisy ones, in the l2 norm of pixels.

    Args:
        noisy: [N, H, W, C] float32.
        images: [N, H, W, C] float32.
        own: [n] int, the noisy images that are asked for; none is its own neighbour.
        number: of neighbours, below N.

    Returns:
        [n, number] int32 indices, the nearest first.
    """
    flat = jnp.asarray(images.reshape(len(images), -1))
    found = np.empty((len(own), number), np.int32)
    for start in range(0, len(own), CHUNK):
        part = own[start : start + CHUNK]
        filled = np.resize(part, CHUNK)  # one shape to compile
        rows = noisy[filled].reshape(CHUNK, -1)
        found[start : start + CHUNK] = _nearest(rows, filled, flat, number)[: len(part)]
    return found


@functools.partial(jax.jit, static_argnames='number')
def _nearest(
    rows: jax.Array, own: jax.Array, flat: jax.Array, number: int
) -> jax.Array:
    product = jnp.matmul(rows, flat.T, precision='highest')
    far = jnp.sum(jnp.square(flat), axis=1) - 2 * product  # less |x~|^2, equal for all
    far = far.at[jnp.arange(len(own)), own].set(jnp.inf)
    return jax.lax.top_k(-far, number)[1]


def _within(
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
