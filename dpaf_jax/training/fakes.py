"""Batches of fakes in training, dealt to the devices; labels from public numbers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.release.samplers.latent import LatentSampler
from dpaf_jax.runtime import parallel


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
