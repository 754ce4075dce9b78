"""DPAGG in the forward pass: the only way of a private image into phase 2's aggregates.

An image becomes a bounded row of features (taps/); rows are summed into one aggregate,
or into that of their class (`query`), and noised once (`privatise`). Fake aggregates get
the noise law of the real ones, from another key: with one key their difference would be
free of noise.

Source: DPAF (conference version) section 3.2; Algorithm 1, line 8.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.methods.dpaf.networks import Networks, Params
from dpaf_jax.methods.dpaf.phase2.schedule import Schedule
from dpaf_jax.methods.dpaf.taps.features import features
from dpaf_jax.methods.dpaf.taps.layout import TapLayout
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.aggregation import aggregate, dpagg
from dpaf_jax.privacy.grid import ExactSum
from dpaf_jax.training.batch import ClipBatch


@dataclasses.dataclass(frozen=True)
class Aggregator:
    """From images to noised aggregates [A, F]; its methods are pure functions."""

    networks: Networks
    schedule: Schedule

    @property
    def taps(self) -> TapLayout:
        """The columns of a row."""
        return self.schedule.taps

    def rows(self, params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, F] rows of float images, not yet bounded."""
        return self.taps.join(features(self.networks, params, images, labels))

    def segment_ids(self, labels: jax.Array) -> jax.Array:
        """[B] int32: the aggregate that each label's rows go to."""
        return labels if self.schedule.class_pure else jnp.zeros_like(labels)

    def query(self, params: Params, batch: ClipBatch) -> jax.Array | ExactSum:
        """This device's pre-noise aggregates [A, F] of its share of a draw.

        Sensitivity of the sum over devices: `taps.bound`, since a record's row is
        clipped to it and enters one aggregate.
        """
        one_draw = jnp.zeros(len(batch.labels), jnp.int32)
        sums = self.queries(params, batch, one_draw, 1)
        return jax.tree.map(lambda leaf: leaf[0], sums)

    def queries(
        self, params: Params, batch: ClipBatch, draw: jax.Array, number: int
    ) -> jax.Array | ExactSum:
        """As `query`, of several draws at once, while the features stay the same.

        Args:
            params: of the features.
            batch: this device's share of all draws.
            draw: [U] int32 in [0, number): the one that each unit is of. A record that
                several have drawn is there several times.
            number: of draws.

        Returns:
            [number, A, F]: to each, other draws' records add nothing.
        """
        m, each = self.schedule.dpagg, self.schedule.num_aggregates
        batch = batch.without_padding()
        labels = batch.labels[:, 0]
        summed = aggregate(
            self.rows(params, to_float(batch.images[:, 0]), labels),
            draw * each + self.segment_ids(labels),
            batch.is_padding_example[:, 0],
            number * each,
            m.l2_sensitivity,
            m.grid,
        )
        return jax.tree.map(lambda leaf: leaf.reshape(number, each, -1), summed)

    def privatise(self, sums: jax.Array | ExactSum, key_data: jax.Array) -> jax.Array:
        """The noised mean rows [A, F], which everything else reads.

        Args:
            sums: [A, F], this device's `query`.
            key_data: of this step's noise alone.
        """
        expected = jnp.asarray(self.schedule.expected_counts)
        return dpagg(sums, key_data, self.schedule.dpagg.noise_std, expected)

    def of_fakes(
        self,
        params: Params,
        fakes: tuple[jax.Array, jax.Array, jax.Array],
        key_count: jax.Array,
        noise_key_data: jax.Array,
    ) -> jax.Array:
        """[A, F]: fakes through the same features, counts and noise law as reals.

        The mean row of `num_fakes`, times a count with the law of a real draw's: mean and
        spread are those of a sum over so many, and no fake is made that no one counts.

        Args:
            params: of the features.
            fakes: this device's share of images, labels, is_padding.
            key_count: of the counts.
            noise_key_data: of the noise; never that of a real aggregate.
        """
        images, labels, is_padding = fakes
        m, number = self.schedule.dpagg, self.schedule.num_fakes
        sums: Any = aggregate(
            self.rows(params, images, labels),
            self.segment_ids(labels),
            is_padding,
            self.schedule.num_aggregates,
            m.l2_sensitivity,
        )
        expected = jnp.asarray(self.schedule.expected_counts)
        counts = expected
        if not self.schedule.fixed_batches:
            records = (expected / m.sampling_prob).round()
            counts = jax.random.binomial(key_count, records, m.sampling_prob)
        return self.privatise(sums * (counts / number[:, None]), noise_key_data)

    def fake_labels(self) -> np.ndarray:
        """[sum of num_fakes] int32: the classes of fakes where each has its aggregate."""
        number = self.schedule.num_fakes
        return np.repeat(np.arange(self.schedule.num_aggregates), number)
