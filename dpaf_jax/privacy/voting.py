"""Teachers' votes and Confident-GNMax: how G-PATE's gradients leave the private side.

Formal guarantee. Each teacher casts one vote per query, for one of B bins. A query releases
the histogram of the votes with noise of standard deviation sigma2 on every bin, and the
height of its highest bin with sigma1 = ratio * sigma2. Let one teacher change arbitrarily,
which is what emptying one record of its part can do at worst, now or in any earlier step:

- one vote moves from a bin to another, so the histogram moves by at most sqrt(2);
- every bin moves by at most 1, and so does the highest: by at most 1.

Both are one Gaussian query: with the height divided by the ratio, all coordinates carry
sigma2 and the vector moves by at most `sensitivity(ratio)` = sqrt(2 + 1 / ratio^2). Its
Renyi divergence of order a is a / (2 sigma1^2) + a / sigma2^2. Nothing is asked of the
teachers: they may keep state from step to step and see any record of their own part at any
time. Nothing is sampled, so nothing is amplified.

Source: G-PATE, algorithm 2; Papernot et al. 2018, "Scalable private learning with PATE",
sections 3.2 and 4 (the data-independent bounds).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpaf_jax.privacy import chacha
from dpaf_jax.privacy.grid import ExactSum, Grid
from dpaf_jax.privacy.noise import add_gaussian, noisy_total
from dpaf_jax.runtime import parallel


class Ballot(NamedTuple):
    """What everybody may see of some queries.

    Attributes:
        histogram: [..., B] float32 noisy votes.
        highest: [...] float32 noisy height of the highest bin, of the exact histogram;
            None where the queries have no check.
    """

    histogram: jax.Array
    highest: jax.Array | None


def sensitivity(ratio: float) -> float:
    """How far one teacher moves one query, in l2; see the module.

    Args:
        ratio: sigma1 / sigma2; infinity for queries without a check.
    """
    return math.sqrt(2 + 1 / ratio**2)


def discretise(values: jax.Array, clip: float, bins: int) -> jax.Array:
    """The bin of each value: [-clip, clip] in `bins` of equal width.

    Args:
        values: any shape, float32; what lies outside goes to the outermost bins, NaN to
            the first: any vote counts as one.
        clip: above 0.
        bins: at least 2.

    Returns:
        int32 in [0, bins).
    """
    place = jnp.floor((values / clip + 1) * (bins / 2))
    place = jnp.where(jnp.isnan(place), 0.0, place)
    return jnp.clip(place, 0, bins - 1).astype(jnp.int32)


def midpoint(place: jax.Array, bins: int) -> jax.Array:
    """The middle of a bin, in units of the clip."""
    return (2 * place.astype(jnp.float32) + 1) / bins - 1


def count(votes: jax.Array, bins: int, grid: Grid | None) -> ExactSum | jax.Array:
    """This device's histograms.

    Args:
        votes: [n, ...] int32 bins, of n teachers.
        bins: B.
        grid: on which votes are added exactly; None where no noise follows.

    Returns:
        [..., B].
    """
    ballots = jax.nn.one_hot(votes, bins)
    return grid.sum(ballots) if grid else jnp.sum(ballots, axis=0)


def release(
    counted: ExactSum | jax.Array, key_data: jax.Array, noise_std: float, ratio: float
) -> Ballot:
    """The sum over devices and the noise, once.

    Args:
        counted: [..., B], this device's.
        key_data: [8] uint32 of this step alone, equal on all devices.
        noise_std: sigma2.
        ratio: sigma1 over sigma2; infinity for no check: then no height is released.
    """
    if math.isinf(ratio):
        return Ballot(noisy_total(counted, key_data, noise_std), None)
    histogram = parallel.total(counted)
    exact = histogram.rounded() if isinstance(histogram, ExactSum) else histogram
    winner = jnp.argmax(exact, axis=-1, keepdims=True)
    highest = jax.tree.map(
        lambda leaf: jnp.take_along_axis(leaf, winner, axis=-1)[..., 0], histogram
    )
    for_bins, for_highest = (chacha.derived(key_data, i) for i in range(2))
    return Ballot(
        add_gaussian(histogram, for_bins, noise_std),
        add_gaussian(highest, for_highest, ratio * noise_std),
    )


def noisy_sum(answers: jax.Array, key_data: jax.Array, noise_std: float) -> jax.Array:
    """The sum of answers that are signs or votes, exact; with noise, once.

    Its sensitivity is how far one teacher's answer can be from another: at most 2 in each
    entry, whatever a teacher says, since answers are cut to [-1, 1] here.

    Args:
        answers: [n, ...] float32 of -1, 0 and 1, of this device's n teachers; what is
            beyond is cut.
        key_data: [8] uint32 of this step alone, equal on all devices.
        noise_std: of each entry; without noise the sum is a plain one.

    Returns:
        [...] over the teachers of all devices.
    """
    answers = jnp.clip(answers, -1.0, 1.0)
    summed: ExactSum | jax.Array = jnp.sum(answers, axis=0)
    if noise_std:
        summed = Grid.of(1.0, noise_std).sum(answers)
    noisy: jax.Array = noisy_total(summed, key_data, noise_std)
    return noisy


def confident_gnmax(ballot: Ballot, threshold: float) -> tuple[jax.Array, jax.Array]:
    """Post-processing: the winning values, where enough teachers agree.

    Args:
        ballot: released.
        threshold: votes that the highest bin must have, where there is a check.

    Returns:
        ([...] float32 midpoints of the winning bins in units of the clip, 0 where the
        check fails; [...] bool, whether it passed).
    """
    winner = jnp.argmax(ballot.histogram, axis=-1)
    value = midpoint(winner, ballot.histogram.shape[-1])
    if ballot.highest is None:
        return value, jnp.ones(value.shape, bool)
    passed = ballot.highest >= threshold
    return jnp.where(passed, value, 0.0), passed
