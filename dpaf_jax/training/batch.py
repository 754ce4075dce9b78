"""Batches on a device: a draw's records, clipped as units, and fakes, by public numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpaf_jax.release.samplers.latent import LatentSampler
from dpaf_jax.runtime import parallel


class ClipBatch(NamedTuple):
    """One draw on one device, with images gathered.

    Attributes:
        images: [U, M, H, W, C] uint8.
        labels: [U, M] int32.
        is_padding_example: [U, M] bool.
        index: [U, M] int32, each record's place among all N, empty ones counted: what its
            own coins derive from (`keys.record_keys`). Anything where padded.
    """

    images: parallel.HostOrDevice
    labels: parallel.HostOrDevice
    is_padding_example: parallel.HostOrDevice
    index: parallel.HostOrDevice

    def without_padding(self) -> 'ClipBatch':
        """Padding holds nothing: its slots point at some record, here at none.

        They become black, with coins that are nobody's. Weights of 0 would not do: a feature
        that is NaN stays NaN, so one record's could empty every group.
        """
        blank = self.is_padding_example
        return self._replace(
            images=jnp.where(blank[..., None, None, None], 0, self.images),
            labels=jnp.where(blank, 0, self.labels),
            index=jnp.where(blank, 0, self.index),
        )

    def of_all_devices(self) -> 'ClipBatch':
        """The units of every device on each, inside a `pmapped` function."""
        device, number = parallel.place()

        def whole(part: jax.Array) -> jax.Array:
            numbers = part.astype(jnp.int32)
            room = jnp.zeros((number, *part.shape), jnp.int32).at[device].set(numbers)
            joined = parallel.total(room).reshape(-1, *part.shape[1:])
            return joined.astype(part.dtype)

        return ClipBatch(*(whole(jnp.asarray(part)) for part in self))


def membership(segment_ids: jax.Array, is_padding: jax.Array, number: int) -> jax.Array:
    """[B, number] float32: 1 where a row is of a segment and no padding, else 0.

    Its transpose times rows [B, F] are their sums by segment.
    """
    return jnp.where(is_padding[:, None], 0.0, jax.nn.one_hot(segment_ids, number))


def prior_labels(prior: Sequence[float], key: jax.Array, number: int) -> jax.Array:
    """[number] int32 drawn from the public class prior."""
    return jax.random.categorical(key, jnp.log(jnp.array(prior)), shape=(number,))


def share_of_fakes(
    sampler: LatentSampler,
    params: Any,
    key: jax.Array,
    labels: jax.Array,
    num_devices: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """This device's part of one batch of fakes, inside a `pmapped` function.

    Args:
        sampler: makes them.
        params: of the generator.
        key: equal on all devices.
        labels: [B] int32, equal on all devices.
        num_devices: D.

    Returns:
        [ceil(B / D), H, W, C] float32 images, their labels, and is_padding.
    """
    z = jax.random.normal(key, (len(labels), sampler.z_dim))
    z, is_padding = parallel.my_share(z, num_devices)
    labels, _ = parallel.my_share(labels, num_devices)
    return sampler.generator.apply(params, z, labels), labels, is_padding
