"""What privacy costs in time: the certified step against the same step without protection.

    python -m benchmarks.step_cost --config=configs/mnist.py

Each phase of the config's method is compiled twice and timed in turn, on random images: as it
runs, and with fixed unpadded batches, one gradient of the batch's loss instead of clipped ones
of its examples, no compression and no noise. Windows that ask the data and windows that do not
are timed apart and count as often as a run has them. Times are CPU time where the CPU
computes, wall time on an accelerator. The last line is one JSON object: `dp_over_nonprivate`
(time of the run over that without protection, phases weighted by their steps),
`images_per_second` of the certified phases, and `peak_mib` of the certified run's process,
before the other one was made.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from absl import flags

from dpaf_jax.runtime.command import prepare_jax, require, start
from dpaf_jax.runtime.config_flag import CONFIG, parse
from dpaf_jax.runtime.progress import examples_until

_ROUNDS = flags.DEFINE_integer('rounds', 7, 'Timed windows of each.', lower_bound=1)
_IMAGES = flags.DEFINE_integer(
    'images', 0, 'N; default: of the config, or 60000.', lower_bound=0
)


def plain_gradient_sum(
    loss_fn: Callable[..., Any], params: Any, batch: Any, is_padding: Any, **_: Any
) -> Any:
    """One gradient of the summed loss: what training without privacy computes."""
    import jax
    import jax.numpy as jnp

    del is_padding

    def loss(params: Any) -> Any:
        return jnp.sum(jax.vmap(loss_fn, in_axes=(None, 0))(params, batch))

    return jax.grad(loss)(params)


def fixed_draw(mechanism: Any, eligible: Any, keys: Any, step: int) -> Any:
    """The next records in turn: no coins, no padding."""
    import numpy as np

    from dpaf_jax.privacy.sampling import Draw

    del keys
    there = np.arange(eligible) if isinstance(eligible, int) else eligible
    size = round(mechanism.expected_batch_size)
    chosen = there[(np.arange(size) + step * size) % len(there)].astype(np.int32)
    if mechanism.num_groups > 1:
        chosen = chosen[: size - size % mechanism.num_groups]
        chosen = chosen.reshape(mechanism.num_groups, -1)
    else:
        chosen = chosen[:, None]
    return Draw(chosen, np.zeros(chosen.shape, bool))


@contextlib.contextmanager
def without_protection() -> Iterator[None]:
    """The package's own phases, with plain gradients of fixed batches.

    Our convolution would make a gradient for each example and add them up.
    """
    from benchmarks.probe import native_convolution
    from dpaf_jax.privacy import clipping, sampling

    instead = {
        'clipped_gradient_sum': (clipping.clipped_gradient_sum, plain_gradient_sum),
        'poisson_draw': (sampling.poisson_draw, fixed_draw),
        'clip_vector': (clipping.clip_vector, lambda vector, _: vector),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(native_convolution())
        for name, (original, other) in instead.items():
            for path, module in list(sys.modules.items()):
                ours = path.startswith('dpaf_jax')
                if ours and getattr(module, name, None) is original:
                    stack.enter_context(mock.patch.object(module, name, other))
        yield


def unprotected(plan: Any) -> Any:
    """The same mechanisms without noise."""
    quiet = [dataclasses.replace(m, noise_multiplier=0.0) for m in plan.mechanisms]
    return dataclasses.replace(plan, mechanisms=tuple(quiet))


def phase_seconds(certified: Any, plain: Any) -> dict[str, float]:
    """What all windows of a phase cost in both worlds; `wall`: certified, by the clock.

    Args:
        certified: the phase's `probe.Window`, called once.
        plain: that of the same phase without protection.
    """
    from benchmarks.timing import interleaved

    # Each in its own world: draws of another shape would be compiled anew.
    worlds = {'certified': certified, 'plain': without_protection()(plain)}
    seconds = dict.fromkeys([*worlds, 'wall'], 0.0)
    for begin, windows in certified.kinds():
        certified.start = plain.start = begin
        for call in worlds.values():
            call()
        found = interleaved(worlds, _ROUNDS.value)
        for name, timing in found.items():
            seconds[name] += timing.cost * windows
            each = 1e3 * timing.cost / certified.steps
            print(f'{certified.name:<12} {name:<10} {each:9.2f} ms a step')
        seconds['wall'] += found['certified'].wall * windows
    return seconds


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    (given,) = require(argv, {'config': CONFIG.value})
    prepare_jax()
    import jax

    from benchmarks import probe
    from benchmarks.timing import peak_mib, print_result
    from dpaf_jax.config import from_config_dict

    config = from_config_dict(given)
    num_examples = _IMAGES.value or config.data.num_examples or 60000
    data = probe.random_images(config, num_examples)
    plan = probe.rough_plan(config, num_examples)
    devices = jax.local_devices()[:1]
    certified = probe.windows(config, data, plan, devices)
    for window in certified:
        window()
    result: dict[str, Any] = {'peak_mib': peak_mib()}
    with without_protection():
        plain = probe.windows(config, data, unprotected(plan), devices)
    total = {'certified': 0.0, 'plain': 0.0}
    for ours, other in zip(certified, plain, strict=True):
        name, phase, seconds = ours.name, ours.phase, phase_seconds(ours, other)
        for world in total:
            total[world] += seconds[world]
            result[f'{name}_{world}_ms'] = 1e3 * seconds[world] / phase.total_steps
        images = examples_until(phase.images, phase.total_steps)
        result[f'{name}_images_per_second'] = images / seconds['wall']
        result[f'{name}_dp_over_nonprivate'] = seconds['certified'] / seconds['plain']
    result['dp_over_nonprivate'] = total['certified'] / total['plain']
    result['images_per_second'] = result[f'{certified[-1].name}_images_per_second']
    print_result(result)


if __name__ == '__main__':
    start(main, parse)
