"""Teaches the network `leaves` to tell which two pictures show one made-up object.

    python -m experiments.dead_leaves --out=leaves.safetensors

By the contrastive loss of Chen et al. 2020 (SimCLR): of all pictures of a batch the other one
of the same object must look most alike. Batch normalisation is folded into the weights, which
are kept in 16 bits. The package ships what came out (networks/perceptual/leaves.py).
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import safetensors.numpy
from absl import flags
from flax import linen as nn

from dpaf_jax.networks.fixed.dead_leaves import pairs
from dpaf_jax.networks.perceptual.leaves import LAYERS, load_params
from dpaf_jax.runtime.command import fail, parse, prepare_jax, start
from dpaf_jax.runtime.files import write_bytes
from dpaf_jax.training.progress import Progress

_OUT = flags.DEFINE_string('out', None, 'A safetensors file.', allow_override=True)
_STEPS = flags.DEFINE_integer(
    'steps', 11_000, 'Of the optimiser.', lower_bound=2, allow_override=True
)
_BATCH = flags.DEFINE_integer('batch_size', 128, 'Objects a step.', lower_bound=2)
_SEED = flags.DEFINE_integer('seed', 1000, 'Of the pictures.', allow_override=True)
_GO_ON = flags.DEFINE_bool('go_on', False, 'Start from the weights of the package.')

Known = dict[str, Any]  # weights, as the package reads them

SIDE = 32  # of the pictures, in pixels
TEMPERATURE = 0.15
NORM = {'momentum': 0.98, 'epsilon': 1e-5}


class Body(nn.Module):
    """The layers that are kept."""

    @nn.compact
    def __call__(self, x: jax.Array, is_training: bool) -> jax.Array:
        for width, side, stride in LAYERS:
            x = nn.Conv(width, (side, side), (stride, stride), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(not is_training, **NORM)(x))
        return x


class Judge(nn.Module):
    """The layers that are kept, and those that only learning needs."""

    @nn.compact
    def __call__(self, x: jax.Array, is_training: bool) -> jax.Array:
        x = jnp.mean(Body(name='body')(x, is_training), axis=(1, 2))
        x = nn.Dense(384, use_bias=False)(x)
        return nn.Dense(128)(nn.relu(nn.BatchNorm(not is_training, **NORM)(x)))


def loss(variables: Any, stats: Any, pictures: jax.Array) -> tuple[jax.Array, Any]:
    """InfoNCE of [n, 2, ...] pictures; the new statistics, and how many are found."""
    both = jnp.concatenate([pictures[:, 0], pictures[:, 1]])
    rows, new = Judge().apply(
        {'params': variables, 'batch_stats': stats}, both, True, mutable=['batch_stats']
    )
    rows = rows / jnp.sqrt(jnp.sum(jnp.square(rows), axis=1, keepdims=True) + 1e-8)
    number = len(both)
    alike = rows @ rows.T / TEMPERATURE - 1e9 * jnp.eye(number)
    other = (jnp.arange(number) + number // 2) % number
    each = optax.softmax_cross_entropy_with_integer_labels(alike, other)
    found = jnp.mean(jnp.argmax(alike, axis=1) == other)
    return jnp.mean(each), (new['batch_stats'], found)


def taught(steps: int, batch_size: int, seed: int, known: Known | None = None) -> Known:
    """Trains, from known weights where there are any; returns the package's weights."""
    variables = Judge().init(jax.random.key(0), jnp.zeros((2, SIDE, SIDE, 3)), True)
    params, stats = variables['params'], variables['batch_stats']
    if known:
        shown = pairs(jax.random.key(seed), batch_size, SIDE)
        params = {**params, 'body': unfolded(known, jnp.concatenate(list(shown)))}
    warm = min(200, steps // 2)
    rate = optax.warmup_cosine_decay_schedule(0, 2e-3, warm, steps, 1e-5)
    optimizer = optax.adamw(rate, weight_decay=1e-4)
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, stats: Any, state: Any, number: jax.Array) -> Any:
        key = jax.random.fold_in(jax.random.key(seed), number)
        pictures = pairs(key, batch_size, SIDE)
        made = jax.value_and_grad(loss, has_aux=True)(params, stats, pictures)
        (value, (stats, found)), gradient = made
        updates, state = optimizer.update(gradient, state, params)
        told = {'loss': value, 'found': found}
        return optax.apply_updates(params, updates), stats, state, told

    progress = Progress('dead leaves', steps, batch_size)
    for number in range(steps):
        params, stats, state, told = step(params, stats, state, jnp.int32(number))
        progress.update(number + 1, told)
    progress.close()
    return folded(params['body'], stats['body'])


def unfolded(known: Known, pictures: jax.Array) -> Any:
    """Parameters of a `Body` that makes of [n, ...] pictures what the known weights make.

    The inverse of `folded`, but for each map's length, which normalisation takes away.
    """
    made, x = {}, pictures
    for layer, (width, side, stride) in enumerate(LAYERS):
        kernel = known[f'kernel{layer}']
        conv = nn.Conv(width, (side, side), (stride, stride), use_bias=False)
        x = conv.apply({'params': {'kernel': kernel}}, x)
        mean, deviation = jnp.mean(x, (0, 1, 2)), jnp.std(x, (0, 1, 2)) + 1e-5
        bias = known[f'bias{layer}']
        made[f'Conv_{layer}'] = {'kernel': kernel / deviation}
        made[f'BatchNorm_{layer}'] = {'scale': deviation, 'bias': mean + bias}
        x = nn.relu(x + bias)
    return made


def folded(params: Any, stats: Any) -> Known:
    """Kernels and biases in 16 bits, with the normalisation in them."""
    made = {}
    for layer in range(len(LAYERS)):
        norm, seen = params[f'BatchNorm_{layer}'], stats[f'BatchNorm_{layer}']
        scale = norm['scale'] / jnp.sqrt(seen['var'] + NORM['epsilon'])
        kernel = params[f'Conv_{layer}']['kernel'] * scale
        made[f'kernel{layer}'] = np.asarray(kernel, np.float16)
        bias = norm['bias'] - seen['mean'] * scale
        made[f'bias{layer}'] = np.asarray(bias, np.float16)
    return dict(sorted(made.items()))


def main(argv: Sequence[str]) -> None:
    """The command."""
    del argv
    if not _OUT.value:
        fail('give --out; see python -m experiments.dead_leaves --help')
    prepare_jax()
    known = load_params() if _GO_ON.value else None
    made = taught(_STEPS.value, _BATCH.value, _SEED.value, known)
    write_bytes(pathlib.Path(_OUT.value), safetensors.numpy.save(made))
    print(f'Written: {_OUT.value}')


if __name__ == '__main__':
    start(main, parse)
