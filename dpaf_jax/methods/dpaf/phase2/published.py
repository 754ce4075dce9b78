"""conv2* as printed (Algorithm 1, lines 9-12), which certifies nothing.

The cotangents are taken at noise-free aggregates of the batches that DPAGG has just used:
one record then moves everybody's gradient, and two mechanisms share one sample.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.methods.dpaf.networks import Params
from dpaf_jax.methods.dpaf.phase2.batch_phase import BatchPhase
from dpaf_jax.methods.dpaf.phase2.conv2_update import (
    cotangents_at,
    descended,
    flattened,
    pulled_back,
)
from dpaf_jax.methods.dpaf.phase2.gan import Gan, GanState, StepKeys
from dpaf_jax.networks.images import to_float
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch, membership


class PublishedBatchPhase(BatchPhase):
    """Phase 2 on shuffled batches of one size, each for both mechanisms."""

    def _slots(self, draws: list[Draw]) -> int:
        return sum(len(draw.indices) for draw in draws)  # none is empty

    def _update_draws(self, update: int) -> dict[str, dict[str, np.ndarray]]:
        return {}


def published_step(
    gan: Gan,
    state: GanState,
    batch: ClipBatch,
    segment_ids: jax.Array,
    keys: StepKeys,
    name: str,
) -> GanState:
    """As `conv2_step`, on the latest mu batches; the arguments are `published_query`'s."""
    sums = published_query(gan, state, batch, segment_ids, name)
    return descended(gan, state, sums, keys, name, gan.config.dpaf.asymmetry)


def published_query(
    gan: Gan, state: GanState, batch: ClipBatch, segment_ids: jax.Array, name: str
) -> Params:
    """This device's pre-noise sum of clipped gradients, which one record moves at will.

    Args:
        gan: static.
        state: gives the features and the head.
        batch: [U, 1, ...] this device's share of the latest mu batches.
        segment_ids: [U] int32, which of the batches.
        name: of the mechanism, one of `gan.updates`.
    """
    flat = flattened(batch)
    v = _raw_cotangents(gan, state, flat, segment_ids)
    return pulled_back(gan, state, flat, v[segment_ids], name)


def _raw_cotangents(
    gan: Gan, state: GanState, flat: ClipBatch, segment_ids: jax.Array
) -> jax.Array:
    """[mu, F]: as `conv2_update.cotangents`, at noise-free aggregates of each batch."""
    rows = gan.aggregator.rows(state.params, to_float(flat.images), flat.labels)
    batches = gan.config.dpaf.asymmetry
    member = membership(segment_ids, flat.is_padding_example, batches)
    raw = parallel.total(member.T @ rows) / gan.schedule.dpagg.expected_batch_size
    return cotangents_at(gan, state, raw, jnp.zeros(batches, jnp.int32))
