"""Gradients of whole batches by convolutions' kernels: ours against XLA's own.

    python -m benchmarks.convolutions --config=configs/recommended.py:celeba64:gender

Three layers alone; then the generator of --config, and the small CNN that judges its images.
`layers.convolve` has a product for each place of a kernel where XLA has a convolution. Ratios
above 1 mean that ours is faster. The last line is one JSON object.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.probe import native_convolution
from benchmarks.timing import interleaved, print_result
from dpaf_jax.config import Config, from_config_dict
from dpaf_jax.evaluation.classifiers import Cnn
from dpaf_jax.networks.generator import make_generator
from dpaf_jax.networks.layers import convolve
from dpaf_jax.runtime.command import prepare_jax, require, start
from dpaf_jax.runtime.config_flag import CONFIG, parse

# Side, maps before and behind, side of the kernel.
LAYERS = ((32, 64, 128, 3), (14, 64, 128, 3), (32, 32, 64, 1))

_BATCH = flags.DEFINE_integer('batch', 50, 'Images.', lower_bound=1)
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Timed calls of each.', lower_bound=1)

Call = Callable[[], Any]


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    (given,) = require(argv, {'config': CONFIG.value})
    prepare_jax()
    config, batch = from_config_dict(given), _BATCH.value
    made = {_name(*each): layer(batch, *each) for each in LAYERS}
    made |= {'generator': generator(config, batch), 'CNN': judge(config, batch)}
    result: dict[str, float] = {}
    for name, (ours, xlas) in made.items():
        with native_convolution():
            xlas()  # traced here
        found = interleaved({'ours': ours, 'XLA': xlas}, _ROUNDS.value)
        result[name] = found['XLA'].cost / found['ours'].cost
        times = '  '.join(f'{n} {1e3 * t.wall:.0f} ms' for n, t in found.items())
        cpu = '  '.join(f'{1e3 * t.cpu:.0f}' for t in found.values())
        print(f'{name:<34} {times}, CPU {cpu} ms', flush=True)
    print_result({'batch': batch, **result})


def _name(side: int, maps: int, width: int, kernel: int) -> str:
    return f'{maps} to {width} maps of {side} x {side}, by {kernel}'


def layer(batch: int, side: int, maps: int, width: int, kernel: int) -> list[Call]:
    """By maps and kernel, twice, for two ways to trace it."""
    rng = np.random.default_rng(0)
    seen = jnp.asarray(rng.normal(size=(batch, side, side, maps)), jnp.float32)
    weights = jnp.asarray(rng.normal(size=(kernel, kernel, maps, width)), jnp.float32)

    def loss(seen: jax.Array, weights: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(convolve(seen, weights, (1, 1), 'SAME')))

    return _twice(jax.grad(loss, (0, 1)), seen, weights)


def generator(config: Config, batch: int) -> list[Call]:
    """By the parameters of the generator that the config trains."""
    network = make_generator(config)
    z = jax.random.normal(jax.random.key(1), (batch, config.networks.z_dim))
    labels = jnp.arange(batch) % config.data.num_classes
    params = network.init(jax.random.key(0), z, labels)

    def loss(params: Any) -> jax.Array:
        return jnp.sum(jnp.square(network.apply(params, z, labels)))

    return _twice(jax.grad(loss), params)


def judge(config: Config, batch: int) -> list[Call]:
    """By the parameters of the small CNN, as its training has them."""
    network = Cnn(config.data.num_classes)
    images = jax.random.uniform(jax.random.key(1), (batch, *config.data.shape))
    params = network.init(jax.random.key(0), images, train=False)

    def loss(params: Any) -> jax.Array:
        coins = {'dropout': jax.random.key(2)}
        return jnp.sum(jnp.square(network.apply(params, images, True, rngs=coins)))

    return _twice(jax.grad(loss), params)


def _twice(fn: Callable[..., Any], *args: Any) -> list[Call]:
    # A function of its own each time, or JAX would take the first program for the second.
    return [functools.partial(jax.jit(lambda *x: fn(*x)), *args) for _ in range(2)]


if __name__ == '__main__':
    start(main, parse)
