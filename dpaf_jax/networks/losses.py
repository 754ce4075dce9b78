"""Loss functions, by the papers' names."""

import math

import jax
import jax.numpy as jnp
import optax

from dpaf_jax.networks.images import opponent


def real_cross_entropy(logits: jax.Array) -> jax.Array:
    """Mean BCE of logits against the answer 'real' (in L'_BCE, and the generator's)."""
    target = jnp.ones_like(logits)
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, target))


def proportions_error(logits: jax.Array, proportions: jax.Array) -> jax.Array:
    """L_MSE: predicted against true class proportions of an aggregate.

    Args:
        logits: [A, K]; their softmax is the prediction.
        proportions: [A, K], non-negative, rows summing to 1 (or 0: an empty group).
    """
    return jnp.mean(jnp.square(jax.nn.softmax(logits) - proportions))


def unbiased_squared_distance(
    sums: jax.Array, squares: jax.Array, counts: jax.Array, targets: jax.Array
) -> jax.Array:
    """Squared distance between the mean of a distribution and a target, without bias.

    The plain estimate |mean - t|^2 also contains the variance of the mean, which a
    generator lowers by collapsing; the pairs i != j alone do not.

    Args:
        sums: [A, F] sum of n draws.
        squares: [A] sum of their squared norms.
        counts: [A] n, at least 2.
        targets: [A, F].

    Returns:
        [A]: (|S - n t|^2 - sum |f_i - t|^2) / (n (n - 1)); may be below 0.
    """
    n = counts[:, None]
    centred = jnp.sum(jnp.square(sums - n * targets), axis=1)
    cross = jnp.sum(sums * targets, axis=1)
    own = squares - 2 * cross + counts * jnp.sum(jnp.square(targets), axis=1)
    return (centred - own) / (counts * (counts - 1))


HUES = 1.5  # weight of a hue's variation beside that of brightness


def total_variation(images: jax.Array) -> jax.Array:
    """[B]: how much neighbouring pixels of images [B, H, W, C] differ, per pixel.

    Anisotropic: the mean absolute difference down the columns and that along the rows. In
    colour, of brightness, so that a grey image has as much as with one channel, and `HUES`
    times of either hue: hues of photographs are smooth, and noise in three channels is
    mostly hues (docs/research/2026-11-28-noise-in-colours.md).
    """
    seen, channels = opponent(images), images.shape[-1]
    if channels == 3:
        seen *= jnp.array([1 / math.sqrt(3), HUES, HUES])
    down = jnp.mean(jnp.abs(jnp.diff(seen, axis=1)), axis=(1, 2))
    along = jnp.mean(jnp.abs(jnp.diff(seen, axis=2)), axis=(1, 2))
    return jnp.sum(down + along, axis=1)


def unbiased_squared_length(gaps: jax.Array) -> jax.Array:
    """Squared length of a vector from independent estimates of it, without bias.

    Args:
        gaps: [A, n, F], n >= 2 estimates of each of A vectors.

    Returns:
        [A]: the mean of d_i . d_j over i != j; may be below 0.
    """
    number = gaps.shape[1]
    together = jnp.sum(jnp.square(jnp.sum(gaps, axis=1)), axis=-1)
    own = jnp.sum(jnp.square(gaps), axis=(1, 2))
    return (together - own) / (number * (number - 1))


ANNEALING = 0.5  # of the entropy's weight, from one iteration to the next
LAST_ITERATIONS = 10  # at the weight that is asked for


def transport_plan(
    costs: jax.Array, log_left: jax.Array, log_right: jax.Array, blur: float
) -> jax.Array:
    """The entropic optimal transport, by Sinkhorn's iteration on logarithms.

    The weight of the entropy falls from the largest cost, so that a small one is reached in
    few iterations. Source: Cuturi 2013, and Feydy et al. 2019 for the schedule.

    Args:
        costs: [n, m], not below 0.
        log_left: [n] logarithms of masses that sum to 1.
        log_right: [m], as well.
        blur: weight of the entropy, above 0.

    Returns:
        [n, m] masses moved; rows sum to those on the left, nearly.

    Example:
        >>> costs = jnp.array([[0.0, 9.0], [9.0, 0.0]])
        >>> even = jnp.log(jnp.full(2, 0.5))
        >>> transport_plan(costs, even, even, blur=0.1).round(3)
        Array([[0.5, 0. ],
               [0. , 0.5]], dtype=float32)
    """
    largest = jnp.maximum(jnp.max(costs), blur)

    def softmin(potential: jax.Array, axis: int, weight: jax.Array) -> jax.Array:
        return -weight * jax.nn.logsumexp(potential, axis=axis)

    def to_left(right: jax.Array, weight: jax.Array) -> jax.Array:
        return softmin(log_right + (right - costs) / weight, 1, weight)

    def body(i: jax.Array, right: jax.Array) -> jax.Array:
        weight = jnp.maximum(largest * ANNEALING**i, blur)
        left = log_left + to_left(right, weight) / weight
        return softmin(left[:, None] - costs / weight, 0, weight)

    halvings = jnp.ceil(jnp.log2(largest / blur)).astype(jnp.int32)
    start = jnp.zeros_like(log_right)
    right = jax.lax.fori_loop(0, halvings + LAST_ITERATIONS, body, start)
    left = to_left(right, jnp.float32(blur))
    return jnp.exp(
        log_left[:, None] + log_right + (left[:, None] + right - costs) / blur
    )
