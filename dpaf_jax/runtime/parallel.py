"""The one file that knows about devices: pmap, the sum over devices, replicas.

Private draws, fake batches and generator batches are dealt to the devices; every sum
over examples crosses them once, by `total`, a private one together with its noise
(`privacy.noise.noisy_total`). All devices then hold the same parameters, which
`unreplicate` checks.

The devices may belong to several processes (processes.py), each of which runs the same code:
`devices` are always those of the whole run, in one order. On the host an array with a device
axis holds the rows of this process's own devices, `mine`.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpaf_jax.runtime import processes
from dpaf_jax.runtime.errors import UserError

AXIS = 'devices'
HostOrDevice = Any  # np.ndarray on the host, jax.Array inside a compiled step


class ReplicasDiffer(RuntimeError):
    """Devices hold other values where all must hold the same: a bug."""


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
    """The first `number` devices, equally many of each process; all of them if it is 0.

    Raises:
        UserError: there are fewer, or the processes cannot share the number.
    """
    each, rest = divmod(number, processes.count())
    devices = sorted(jax.devices(), key=lambda d: (d.process_index, d.id))
    by_process = [
        [d for d in devices if d.process_index == index]
        for index in range(jax.process_count())
    ]
    if rest:
        raise UserError(
            'config.run.devices',
            f'is {number}, for {processes.count()} processes',
            'Give a multiple of that, or 0 for all',
        )
    fewest = min(by_process, key=len)
    if each > len(fewest):
        raise UserError(
            'config.run.devices',
            f'is {number}, but this machine has {len(fewest)} {devices[0].platform}',
            'Ask for fewer, or 0 for all',
        )
    return [d for own in by_process for d in own[: each or len(own)]]


def mine(devices: Sequence[jax.Device]) -> slice:
    """Where this process's devices stand among those of the run."""
    own = [i for i, d in enumerate(devices) if d.process_index == jax.process_index()]
    return slice(own[0], own[-1] + 1)


def place() -> tuple[jax.Array, int]:
    """Which device this is, and of how many, inside a `pmapped` function."""
    return jax.lax.axis_index(AXIS), jax.lax.psum(1, AXIS)


def total(tree: Any) -> Any:
    """Sum over devices, inside a `pmapped` function: one message for a whole tree."""
    return _packed(functools.partial(jax.lax.psum, axis_name=AXIS), tree)


def mean(tree: Any) -> Any:
    """Mean over devices, inside a `pmapped` function: one message for a whole tree."""
    return _packed(functools.partial(jax.lax.pmean, axis_name=AXIS), tree)


def value_and_gradient(
    loss: Callable[[Any], Any], params: Any, *, has_aux: bool = False
) -> tuple[Any, Any]:
    """Of a loss that is equal on all devices, made of `total`s; inside a `pmapped` function.

    The transpose of a sum over devices is a sum over devices, so each device's own gradient
    is of its share times their number: the mean is that of the loss.

    Args:
        loss: of the parameters; with `has_aux` it returns (loss, more).
        params: a tree, equal on all devices.

    Returns:
        What `loss` returns, and the gradient.
    """
    value, gradient = jax.value_and_grad(loss, has_aux=has_aux)(params)
    return value, mean(gradient)


def _packed(reduce: Callable[[jax.Array], jax.Array], tree: Any) -> Any:
    """Applies `reduce` to all leaves of one type as one vector: a message costs time."""
    leaves, structure = jax.tree.flatten(tree)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):  # in one order for all
        where = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
        ends = np.cumsum([leaves[i].size for i in where])
        vector = reduce(jnp.concatenate([leaves[i].ravel() for i in where]))
        for i, part in zip(where, jnp.split(vector, ends[:-1]), strict=True):
            leaves[i] = part.reshape(leaves[i].shape)
    return jax.tree.unflatten(structure, leaves)


def pmapped(
    fn: Callable[..., Any], devices: Sequence[jax.Device], donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """Compiles `fn` for every device; all arguments and results carry a device axis."""
    compiled = jax.pmap(fn, axis_name=AXIS, devices=devices, donate_argnums=donate)
    if processes.count() == 1 or devices[0].platform != 'cpu':
        return compiled
    # Several calls at once may wait for each other across CPU processes, forever.
    return lambda *args: jax.block_until_ready(compiled(*args))


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
        ReplicasDiffer: in a single bit or more: noise or data were not shared.
    """

    def take(leaf: Any) -> Any:
        if isinstance(leaf, Split):
            return Split(jax.tree.map(gather, leaf.tree))
        copies = [np.asarray(shard.data)[0] for shard in leaf.addressable_shards]
        for other in copies[1:]:
            if not np.array_equal(copies[0], other, equal_nan=True):
                raise ReplicasDiffer('replicas differ between devices: this is a bug')
        return copies[0]

    def gather(leaf: jax.Array) -> np.ndarray:
        return np.concatenate([np.asarray(s.data)[0] for s in leaf.addressable_shards])

    return jax.tree.map(take, tree, is_leaf=_is_split)


def alike(tree: Any) -> list[Any]:
    """The leaves of a host's state that all processes have: what is not `Split`."""
    leaves = jax.tree.leaves(tree, is_leaf=_is_split)
    return [leaf for leaf in leaves if not _is_split(leaf)]


def digest(tree: Any) -> bytes:
    """SHA-256 over all leaves."""
    hasher = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        hasher.update(np.ascontiguousarray(leaf).tobytes())
    return hasher.digest()


def _is_split(node: Any) -> bool:
    return isinstance(node, Split)


def first(tree: Any) -> Any:
    """The first device's copy of each leaf, still on the device, unchecked."""
    return jax.tree.map(lambda leaf: leaf.addressable_shards[0].data[0], tree)


class Vote:
    """What any process asks, told to all of them at the same step.

    One process has its answer at once; several have it a call later, so that nobody waits
    for the step that the devices are at.
    """

    def __init__(self, devices: Sequence[jax.Device]):
        highest = functools.partial(jax.lax.pmax, axis_name=AXIS)
        self._number = len(devices[mine(devices)])
        self._fn = pmapped(highest, devices) if processes.count() > 1 else None
        self._cast: jax.Array | None = None

    def __call__(self, asked: Sequence[int]) -> list[int]:
        """The highest of what the processes asked, number by number."""
        if self._fn is None:
            return list(asked)
        before = self._cast
        ballot = np.broadcast_to(np.array(asked, np.int32), (self._number, len(asked)))
        self._cast = self._fn(ballot)
        return (
            [0] * len(asked) if before is None else np.asarray(first(before)).tolist()
        )


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
