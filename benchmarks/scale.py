"""What a run costs as one thing grows: counted from the programs, and from one formula each.

    python -m benchmarks.scale --config=configs/mnist.py:printed

For the config, and for the config with one thing changed at a time (N x 10, side x 2, batch
x 2, width x 2, mu x 2, 8 devices), and for each phase: operations per step as the program is
written (nothing is compiled or run), steps of the whole run, and memory on one device: images,
if they are to lie there; per-example gradients of one step, which is what a clipped sum needs
most; the state that persists. `matrix_rate`, measured on products of 1024 x 1024, turns
operations into the least time that this machine could take. The last line is one JSON object.
"""

import os
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpaf_jax.runtime.command import prepare_jax, require, start
from dpaf_jax.runtime.config_flag import CONFIG, parse

_IMAGES = flags.DEFINE_integer('images', 0, 'N; default: of the config, or 60000.')
DEVICES, STAND_IN = 8, 1024  # nothing counted here depends on how many images there are


def changes(config: Any) -> dict[str, dict[str, Any]]:
    """Fields that differ from the config, by name."""
    dpaf, net = config.dpaf, config.networks
    return {
        'config': {},
        'N x 10': {},
        'side x 2': {'data.image_size': 2 * config.data.image_size},
        'batch x 2': {
            'dpaf.batch_size': 2 * dpaf.batch_size,
            'dpaf.classifier.batch_size': 2 * dpaf.classifier.batch_size,
            'dpaf.conv2.batch_size': 2 * dpaf.conv2.batch_size,
            'dpaf.generator.batch_size': 2 * dpaf.generator.batch_size,
        },
        'width x 2': {
            'networks.width': 2 * net.width,
            'networks.max_width': 2 * net.max_width,
            'networks.generator_width': 2 * net.generator_width,
        },
        'mu x 2': {'dpaf.asymmetry': 2 * dpaf.asymmetry},
        f'{DEVICES} devices': {},
    }


def rows(config: Any, name: str, num_examples: int) -> list[dict[str, Any]]:
    """One per phase."""
    import jax
    import numpy as np

    from benchmarks import probe
    from dpaf_jax.training.input_pipeline import at_once

    number = DEVICES if name.endswith('devices') else 1
    n = num_examples * (10 if name.startswith('N') else 1)
    plan = probe.rough_plan(config, n)
    data = probe.random_images(config, STAND_IN)
    with probe.costs() as found:
        made = []
        for window in probe.windows(config, data, plan, jax.local_devices()[:number]):
            found.clear()
            _, steps, _ = window.phase.window(window.state, 0)
            chunk = found.pop('_add_chunk', None)
            flops = sum(cost.calls * cost.flops for cost in found.values()) / steps
            total = flops * window.phase.total_steps
            if chunk:  # one pass over all images before the first step
                total += chunk.flops / at_once(data.images) * n / number
            made.append((window, flops, total))
    state_bytes = [
        sum(np.asarray(x).nbytes for x in jax.tree.leaves(jax.device_get(w.state)))
        / number
        for w, _, _ in made
    ]
    return [
        {
            'change': name,
            'phase': window.name,
            'gflop_per_step_and_device': flops / 1e9,
            'steps': window.phase.total_steps,
            'pflop_of_the_phase': total * number / 1e15,
            'images_mib': n * data.images[0].nbytes / 2**20,
            'gradients_mib': _gradients(window, plan, number) / 2**20,
            'state_mib': size / 2**20,
        }
        for (window, flops, total), size in zip(made, state_bytes, strict=True)
    ]


def _gradients(window: Any, plan: Any, number: int) -> float:
    """Bytes of per-example gradients on one device: units times trained parameters."""
    import jax

    params = getattr(window.state, 'params', {})
    name, parts = ('conv2', ('conv2',)) if window.name == 'gan' else ('conv1', params)
    if name not in plan:
        return 0.0
    m = plan[name]
    size = sum(x[0].size for part in parts for x in jax.tree.leaves(params[part]))
    batch = m.num_groups if m.num_groups > 1 else m.capacity
    return 4.0 * size * -(-batch // number)


def main(argv: Sequence[str]) -> None:
    """Counts and prints."""
    (base,) = require(argv, {'config': CONFIG.value})
    prepare_jax()
    os.environ['JAX_PLATFORMS'] = 'cpu'
    os.environ['XLA_FLAGS'] = f'--xla_force_host_platform_device_count={DEVICES}'
    from benchmarks.rates import matrix_rate
    from benchmarks.timing import print_result
    from dpaf_jax.config import from_config_dict

    num_examples = _IMAGES.value or base.data.num_examples or 60000
    table = []
    for name, fields in changes(base).items():
        asked = base.copy_and_resolve_references()
        asked.update_from_flattened_dict(fields)
        asked.privacy.delta = 1e-9  # below 1 / N, whatever N; it costs no time
        for row in rows(from_config_dict(asked), name, num_examples):
            table.append(row)
            print(
                f'{row["change"]:<10} {row["phase"]:<10} '
                f'{row["gflop_per_step_and_device"]:8.3f} GFLOP a step and device, '
                f'{row["steps"]:7d} steps, {row["pflop_of_the_phase"]:8.3f} PFLOP, MiB: '
                f'images {row["images_mib"]:.0f}, gradients {row["gradients_mib"]:.0f}, '
                f'state {row["state_mib"]:.1f}',
                flush=True,
            )
    print_result({'matrix_rate': matrix_rate(), 'rows': table})


if __name__ == '__main__':
    start(main, parse)
