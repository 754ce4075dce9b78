"""Many devices: what they say to each other, and what dealing a batch to them costs.

    python -m benchmarks.communication --config=configs/digits.py:canonical

For each phase of the config's method: bytes of the sums over devices per step, read from the
compiled program, and CPU seconds of one step on --devices virtual devices over those on one,
for the same global batch. Random images. The last line is one JSON object.
"""

import os
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from dpaf_jax.command import prepare_jax
from dpaf_jax.config_flag import CONFIG, parse

_DEVICES = flags.DEFINE_integer('devices', 8, 'Virtual CPU devices.', lower_bound=2)
_ROUNDS = flags.DEFINE_integer('rounds', 7, 'Timed windows of each.', lower_bound=1)
_IMAGES = flags.DEFINE_integer('images', 2000, 'N.', lower_bound=1)


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    del argv
    prepare_jax()
    os.environ['JAX_PLATFORMS'] = 'cpu'
    os.environ['XLA_FLAGS'] = ' '.join(
        (
            os.environ.get('XLA_FLAGS', ''),
            f'--xla_force_host_platform_device_count={_DEVICES.value}',
        )
    )
    # Imported late: JAX counts its devices when it is imported first.
    import jax

    from benchmarks import probe
    from benchmarks.timing import interleaved, print_result
    from dpaf_jax.config import from_config_dict

    config = from_config_dict(CONFIG.value)
    data = probe.random_images(config, _IMAGES.value)
    plan = probe.rough_plan(config, _IMAGES.value)
    devices = jax.local_devices()
    result: dict[str, Any] = {}
    with probe.programs() as texts:
        many = probe.windows(config, data, plan, devices)
        for window in many:
            del texts[:]
            window()
            sums = [size for text in texts for size in probe.all_reduces(text)]
            result[f'{window.name}_bytes_per_step'] = sum(sums) / window.steps
            result[f'{window.name}_sums_per_step'] = len(sums) / window.steps
    many = probe.windows(config, data, plan, devices)
    alone = probe.windows(config, data, plan, devices[:1])
    for one, all_ in zip(alone, many, strict=True):
        found = interleaved({'one': one, 'all': all_}, _ROUNDS.value)
        for name, timing in found.items():
            each = 1e3 * timing.cpu / one.steps
            print(f'{one.name:<12} {name:<4} {each:9.2f} ms CPU a step')
            result[f'{one.name}_{name}_cpu_ms'] = each
        result[f'{one.name}_cpu_over_one_device'] = found['all'].cpu / found['one'].cpu
    print_result(result)


if __name__ == '__main__':
    app.run(main, flags_parser=parse)
