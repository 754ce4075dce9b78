"""The one file that knows about devices: pmap, the sum over devices, replicas.

Private draws, fake batches and generator batches are dealt to the devices; every sum
over examples crosses them once, by `total`, before any noise. All devices then hold
the same parameters, which `unreplicate` checks.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpaf_jax.errors import UserError

AXIS = 'devices'
HostOrDevice = Any  # np.ndarray on the host, jax.Array inside a compiled step


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Split:
    """A part of a state that is dealt to the devices instead of copied to each.

    Attributes:
        tree: of arrays with a leading axis: [n, ...] on the host, n / D of it inside a
            `pmapped` function.
    """

    tree: Any


def pick_devices(number: int) -> list[jax.Device]:
    """The first `number` local devices; all of them if it is 0.

    Raises:
        UserError: there are fewer.
    """
    devices = jax.local_devices()
    if number > len(devices):
        raise UserError(
            'config.run.devices',
            f'is {number}, but this machine has {len(devices)} {devices[0].platform}',
            'Ask for fewer, or 0 for all',
        )
    return devices[: number or len(devices)]


def total(tree: Any) -> Any:
    """Sum over devices, inside a `pmapped` function."""
    return jax.lax.psum(tree, AXIS)


def mean(tree: Any) -> Any:
    """Mean over devices, inside a `pmapped` function."""
    return jax.lax.pmean(tree, AXIS)


def pmapped(
    fn: Callable[..., Any], devices: Sequence[jax.Device], donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """Compiles `fn` for every device; all arguments and results carry a device axis."""
    return jax.pmap(fn, axis_name=AXIS, devices=devices, donate_argnums=donate)


def replicate(tree: Any, devices: Sequence[jax.Device]) -> Any:
    """Copies host arrays to every device, or deals a `Split`: a leading axis [D] appears."""
    sharding = NamedSharding(Mesh(np.array(devices), (AXIS,)), PartitionSpec(AXIS))

    def place(leaf: Any) -> Any:
        if isinstance(leaf, Split):
            return Split(jax.tree.map(share, leaf.tree))
        host = np.asarray(leaf)
        shape = (len(devices), *host.shape)
        return jax.make_array_from_callback(shape, sharding, lambda _: host[None])

    def share(leaf: Any) -> jax.Array:
        host = np.asarray(leaf)
        dealt = host.reshape(len(devices), -1, *host.shape[1:])
        return jax.make_array_from_callback(dealt.shape, sharding, lambda i: dealt[i])

    return jax.tree.map(place, tree, is_leaf=_is_split)


def unreplicate(tree: Any) -> Any:
    """Returns the first replica as host arrays, after checking that all are equal.

    What was `Split` comes back whole.

    Raises:
        RuntimeError: replicas differ in a single bit: noise or data were not shared.
    """

    def take(leaf: Any) -> Any:
        if isinstance(leaf, Split):
            return Split(jax.tree.map(gather, leaf.tree))
        copies = [np.asarray(shard.data)[0] for shard in leaf.addressable_shards]
        for other in copies[1:]:
            if not np.array_equal(copies[0], other, equal_nan=True):
                raise RuntimeError('replicas differ between devices: this is a bug')
        return copies[0]

    def gather(leaf: jax.Array) -> np.ndarray:
        return np.concatenate([np.asarray(s.data)[0] for s in leaf.addressable_shards])

    return jax.tree.map(take, tree, is_leaf=_is_split)


def _is_split(node: Any) -> bool:
    return isinstance(node, Split)


def first(tree: Any) -> Any:
    """The first device's copy of each leaf, still on the device, unchecked."""
    return jax.tree.map(lambda leaf: leaf.addressable_shards[0].data[0], tree)


def deal(array: HostOrDevice, num_devices: int, axis: int, fill: Any) -> np.ndarray:
    """Splits a host array over devices along `axis`, padding to equal shares.

    Args:
        array: any shape.
        num_devices: D.
        axis: which axis to split.
        fill: value of the padding.

    Returns:
        [D, ...] with `axis` shortened to ceil(n / D).
    """
    short = -array.shape[axis] % num_devices
    widths = [(0, short if a == axis else 0) for a in range(array.ndim)]
    padded = np.pad(array, widths, constant_values=fill)
    return np.stack(np.split(padded, num_devices, axis=axis))


def my_share(array: jax.Array, num_devices: int) -> tuple[jax.Array, jax.Array]:
    """This device's part of an array that every device has drawn alike.

    Args:
        array: [n, ...], equal on all devices.
        num_devices: D.

    Returns:
        ([ceil(n / D), ...] part, [ceil(n / D)] bool: which of it is padding).
    """
    size = -(-len(array) // num_devices)
    short = size * num_devices - len(array)
    padded = jnp.pad(array, [(0, short)] + [(0, 0)] * (array.ndim - 1))
    start = jax.lax.axis_index(AXIS) * size
    part = jax.lax.dynamic_slice_in_dim(padded, start, size)
    return part, start + jnp.arange(size) >= len(array)
