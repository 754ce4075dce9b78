"""Per-example clipped gradients of conv1 and conv2*: ours against other ways.

    python -m benchmarks.clipping --config=configs/mnist.py:printed

One network, batch, precision and clip for all: layers and widths of --config, a fixed linear
functional of conv2*'s maps as loss, float32, random images. `naive` is vmap(grad) of Flax's
own convolution, a clip by the norm and a sum; `plain` is its ordinary gradient. Peers are
measured where they are installed: jax-privacy (`clipping.clipped_grad`) and Opacus
(GradSampleModule, and the clip of its optimiser). Ours adds exactly, on a grid; `compressed`
also keeps the top 90 % of each gradient. Ratios above 1 mean that ours is faster. The last
line is one JSON object.
"""

import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.probe import native_convolution
from benchmarks.timing import interleaved, print_result
from dpaf_jax.config import from_config_dict
from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.privacy.clipping import clipped_gradient_sum
from dpaf_jax.privacy.grid import Grid
from dpaf_jax.runtime.command import prepare_jax, require, start
from dpaf_jax.runtime.config_flag import CONFIG, parse

CLIP = 1.0

_BATCH = flags.DEFINE_integer('batch', 192, 'Examples.', lower_bound=1)
_ROUNDS = flags.DEFINE_integer('rounds', 9, 'Timed calls of each.', lower_bound=1)

Candidates = dict[str, Callable[[], Any]]


class Problem:
    """Parameters, examples, and a loss of one example."""

    def __init__(self, config: Any, batch: int):
        rng = np.random.default_rng(0)
        data, self.networks = config.data, make_networks(config)
        shape = (batch, data.image_size, data.image_size, data.channels)
        images = rng.uniform(-1, 1, size=shape).astype(np.float32)
        planes = jax.nn.one_hot(
            jnp.asarray(rng.integers(data.num_classes, size=batch)), data.num_classes
        )
        keys = jax.random.split(jax.random.key(0))
        conv1 = self.networks.conv1.init(keys[0], images[:1], planes[:1])
        maps1 = self.networks.conv1.apply(conv1, images[:1], planes[:1])
        conv2 = self.networks.conv2.init(keys[1], maps1)
        maps2 = self.networks.conv2.apply(conv2, maps1)
        self.params = {'conv1': conv1, 'conv2': conv2}
        v = rng.normal(size=(batch, *maps2.shape[1:])).astype(np.float32)
        self.units: dict[str, Any] = {
            'image': jnp.asarray(images),
            'planes': planes,
            'v': v,
        }
        self.units = jax.tree.map(jnp.asarray, self.units)

    def maps2(self, params: Any, images: jax.Array, planes: jax.Array) -> jax.Array:
        """[B, p, p, m] behind conv2*."""
        maps1 = self.networks.conv1.apply(params['conv1'], images, planes)
        maps: jax.Array = self.networks.conv2.apply(params['conv2'], maps1)
        return maps

    def loss(self, params: Any, unit: Any) -> jax.Array:
        """Of one example."""
        maps = self.maps2(params, unit['image'][None], unit['planes'][None])
        return jnp.vdot(unit['v'], maps[0])

    @property
    def batch(self) -> int:
        """Number of examples."""
        return len(self.units['image'])


def ours(problem: Problem, keep_fraction: float) -> Callable[[], Any]:
    """As a certified run does it."""
    padding = jnp.zeros(problem.batch, bool)

    def query(params: Any, units: Any) -> Any:
        return clipped_gradient_sum(
            problem.loss,
            params,
            units,
            padding,
            l2_clip_norm=CLIP,
            grid=Grid.of(CLIP, CLIP),
            keep_fraction=keep_fraction,
        )

    return functools.partial(jax.jit(query), problem.params, problem.units)


def naive(problem: Problem) -> Callable[[], Any]:
    """The definition, written down."""

    def query(params: Any, units: Any) -> Any:
        gradients = jax.vmap(jax.grad(problem.loss), (None, 0))(params, units)
        squares = [
            jnp.sum(jnp.square(g), axis=range(1, g.ndim))
            for g in jax.tree.leaves(gradients)
        ]
        scale = jnp.minimum(1.0, CLIP / jnp.sqrt(sum(squares)))
        return jax.tree.map(lambda g: jnp.einsum('u,u...->...', scale, g), gradients)

    return functools.partial(jax.jit(query), problem.params, problem.units)


def plain(problem: Problem) -> Callable[[], Any]:
    """Without privacy: one gradient of the mean."""

    def query(params: Any, units: Any) -> Any:
        maps = problem.maps2(params, units['image'], units['planes'])
        return jnp.vdot(units['v'], maps)

    fn = jax.jit(jax.grad(query))
    return functools.partial(fn, problem.params, problem.units)


def jax_privacy(problem: Problem) -> Callable[[], Any]:
    """`clipped_grad` of jax-privacy."""
    from jax_privacy import clipping

    fn = clipping.clipped_grad(problem.loss, l2_clip_norm=CLIP, keep_batch_dim=False)
    return functools.partial(jax.jit(fn), problem.params, problem.units)


def installed(*names: str) -> bool:
    """Whether peers are."""
    return all(importlib.util.find_spec(name) for name in names)


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    (given,) = require(argv, {'config': CONFIG.value})
    prepare_jax()
    problem = Problem(from_config_dict(given), _BATCH.value)
    candidates: Candidates = {
        'ours': ours(problem, 1.0),
        'compressed': ours(problem, 0.9),
    }
    with native_convolution():
        others: Candidates = {'naive': naive(problem), 'plain': plain(problem)}
        if installed('jax_privacy'):
            others['jax_privacy'] = jax_privacy(problem)
        for call in others.values():
            call()  # traced here
    candidates |= others
    if installed('torch', 'opacus'):
        from benchmarks.opacus_peer import opacus, torch_plain

        candidates['opacus'] = opacus(problem, CLIP)
        candidates['torch_plain'] = torch_plain(problem)
    found = interleaved(candidates, _ROUNDS.value)
    for name, timing in found.items():
        print(f'{name:<12} {1e3 * timing.wall:9.1f} ms {1e3 * timing.cpu:9.1f} ms CPU')

    def over(name: str) -> float | None:
        return found[name].wall / found['ours'].wall if name in found else None

    print_result(
        {
            'speedup_over_naive': over('naive'),
            'speedup_over_jax_privacy': over('jax_privacy'),
            'speedup_over_opacus': over('opacus'),
            'over_plain': found['ours'].wall / found['plain'].wall,
            'compressed_over_ours': found['compressed'].wall / found['ours'].wall,
            'parameters': sum(x.size for x in jax.tree.leaves(problem.params)),
            'batch': problem.batch,
        }
    )


if __name__ == '__main__':
    start(main, parse)
