"""The units in which `loss_match` measures: the spread of the fakes themselves.

Rows of one class spread over a few directions far more than over the others. Those few decide
a plain distance of class means; along the rest a mean may be off by many times what single
images differ there, which is how fakes are told from real images at a glance. Here a gap d
counts as d^T (S + r I)^-1 d (Mahalanobis), where S is the covariance of rows within a class:
that of the fakes, so nothing more is asked of private data. The ridge r keeps the aggregates'
noise from being learnt along directions where there is hardly anything else.

S is estimated block by block of a row: its inverse takes the cube of a block's columns.
"""

import functools
import itertools
import logging
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np

from dpaf_jax.methods.dpaf.phase2.gan import Gan, GanState
from dpaf_jax.methods.dpaf.taps.layout import TapLayout
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import membership
from dpaf_jax.training.run import Run

Factors = tuple[jax.Array, ...]

CHUNKS, CHUNK = 20, 500  # fakes that S is estimated from, and how many at a time
LONGEST = 4096  # columns of a block
LEAST_RIDGE = 0.03  # of the mean variance of a column ...
NOISE_RIDGE = 10.0  # ... and of the variance of the aggregates' noise
TINY = 1e-12  # where there is neither


def blocks(taps: TapLayout) -> list[slice]:
    """Runs of at most `LONGEST` columns of one tap; without `count`, which is constant."""
    made, start = [], 0
    for tap in taps.blocks:
        parts = -(-tap.size // LONGEST) if tap.name != 'count' else 0
        ends = [start + tap.size * i // max(parts, 1) for i in range(parts + 1)]
        made += [slice(*pair) for pair in itertools.pairwise(ends)]
        start += tap.size
    return made


class Whitening:
    """Makes the metric; what it sums are pure functions inside a `pmapped` one."""

    def __init__(self, run: Run, gan: Gan):
        self._run, self._gan = run, gan
        self.blocks = blocks(gan.taps)
        pmapped = functools.partial(parallel.pmapped, devices=run.devices)
        self._centres_fn = pmapped(self._centres)
        self._add_fn = pmapped(self._add, donate=(0,))
        self._factors_fn = pmapped(self._factors)
        self._latest: tuple[int, Factors] = (0, ())

    def metric(self, state: Any, part: int) -> Factors:
        """The metric of a part of training, made once: its reference stays the same.

        A run that goes on makes its part's metric again, from the generator of then.
        """
        if self._latest[0] != part:
            whitenings = self._gan.schedule.whitenings
            logging.info('Measuring the spread of fakes, %d of %d', part, whitenings)
            self._latest = part, self.measured(state, part)
        return self._latest[1]

    def measured(self, state: Any, part: int) -> Factors:
        """The metric by fakes of `state.reference`, on every device.

        Args:
            state: replicated.
            part: of training, from 1; each has public coins of its own.
        """
        run, moments = self._run, parallel.replicate(self._nothing(), self._run.devices)
        keys = [
            run.on_every_device(run.keys.public('whitening', part * (CHUNKS + 1) + i))
            for i in range(CHUNKS + 1)
        ]
        centres = self._centres_fn(state, keys[0])
        for key in keys[1:]:
            run.stop.check_within_window()
            moments = self._add_fn(moments, state, key, centres)
        return self._factors_fn(moments)

    @property
    def _labels(self) -> np.ndarray:
        """Of the fakes of a chunk: every class equally often, but for one fake."""
        number = self._gan.schedule.num_aggregates
        return np.arange(max(CHUNK, number)) % number

    def _fakes(
        self, state: GanState, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """This device's share of `CHUNK` fakes: rows, labels, is_padding."""
        labels = jnp.asarray(self._labels)
        images, labels, is_padding = self._gan.fakes(
            state.reference, public_key(key), labels
        )
        return (
            self._gan.aggregator.rows(state.params, images, labels),
            labels,
            is_padding,
        )

    def _centres(self, state: GanState, key: jax.Array) -> jax.Array:
        """[A, F] about the mean row of each class, from one chunk."""
        rows, labels, is_padding = self._fakes(state, key)
        sums = parallel.total(self._member(labels, is_padding).T @ rows)
        return sums / np.bincount(self._labels)[:, None]

    def _member(self, labels: jax.Array, is_padding: jax.Array) -> jax.Array:
        return membership(labels, is_padding, self._gan.schedule.num_aggregates)

    def _nothing(self) -> tuple[jax.Array, Factors]:
        """What `_add` starts from: sums of rows [A, F] and of their products, by block."""
        sums = jnp.zeros((self._gan.schedule.num_aggregates, self._gan.taps.size))
        sizes = [block.stop - block.start for block in self.blocks]
        return sums, tuple(jnp.zeros((size, size)) for size in sizes)

    def _add(
        self,
        moments: tuple[jax.Array, Factors],
        state: GanState,
        key: jax.Array,
        centres: jax.Array,
    ) -> tuple[jax.Array, Factors]:
        """Adds this device's share of a chunk, measured from `centres`."""
        rows, labels, is_padding = self._fakes(state, key)
        # Products of what is far from 0 would lose what the differences are.
        rows = jnp.where(is_padding[:, None], 0.0, rows - centres[labels])
        sums, products = moments
        parts = [rows[:, block] for block in self.blocks]
        return sums + self._member(labels, is_padding).T @ rows, tuple(
            product + jnp.matmul(part.T, part, precision='highest')
            for product, part in zip(products, parts, strict=True)
        )

    def _factors(self, moments: tuple[jax.Array, Factors]) -> Factors:
        """Matrices P, by block, of which P P^T is (S + r I)^-1."""
        sums, products = parallel.total(moments)
        counts = CHUNKS * np.bincount(self._labels)[:, None]
        made = []
        for block, product in zip(self.blocks, products, strict=True):
            means = sums[:, block] / np.sqrt(counts)
            between = jnp.matmul(means.T, means, precision='highest')
            covariance = (product - between) / counts.sum()
            identity = jnp.eye(len(covariance))
            ridge = LEAST_RIDGE * jnp.trace(covariance) / len(covariance)
            ridge = jnp.maximum(ridge, NOISE_RIDGE * self._noise_variance + TINY)
            lower = jnp.linalg.cholesky(covariance + ridge * identity)
            inverse = jax.scipy.linalg.solve_triangular(lower, identity, lower=True)
            made.append(inverse.T)
        return tuple(made)

    @property
    def _noise_variance(self) -> float:
        """Of an entry of the noised aggregates, averaged over its rows."""
        noise = self._gan.schedule.dpagg.noise_std / self._gan.schedule.expected_counts
        return float((noise**2).mean())


def whitened(factors: Factors, taps: TapLayout, gaps: jax.Array) -> jax.Array:
    """Gaps [..., F] in units of the spread: their squared norm is the distance."""
    parts = [gaps[..., block] for block in blocks(taps)]
    made: list[Any] = [part @ p for part, p in zip(parts, factors, strict=True)]
    return jnp.concatenate(made, axis=-1)
