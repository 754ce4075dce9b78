"""Many devices: what they say to each other, and what dealing a batch to them costs.

    python -m benchmarks.communication --config=configs/digits.py:printed

For each phase of the config's method: bytes of the sums over devices per step, read from the
compiled programs, and CPU seconds of one step on --devices virtual devices over those on one,
for the same global batch. Windows that ask the data and windows that do not are measured apart
and count as often as a run has them. Random images. The last line is one JSON object.
"""

import os
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpaf_jax.runtime.command import prepare_jax, require, start
from dpaf_jax.runtime.config_flag import CONFIG, parse

_DEVICES = flags.DEFINE_integer('devices', 8, 'Virtual CPU devices.', lower_bound=2)
_ROUNDS = flags.DEFINE_integer('rounds', 7, 'Timed windows of each.', lower_bound=1)
_IMAGES = flags.DEFINE_integer('images', 2000, 'N.', lower_bound=1)
Kinds = list[tuple[int, int]]  # a step to start at, and the number of windows alike


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    (given,) = require(argv, {'config': CONFIG.value})
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
    from benchmarks.timing import print_result
    from dpaf_jax.config import from_config_dict

    config = from_config_dict(given)
    data = probe.random_images(config, _IMAGES.value)
    plan = probe.rough_plan(config, _IMAGES.value)
    devices = jax.local_devices()
    result: dict[str, Any] = {}
    kinds: dict[str, Kinds] = {}
    with probe.programs() as texts:
        for window in probe.windows(config, data, plan, devices):
            window()
            kinds[window.name] = window.kinds()
            result |= sums_of(window, kinds[window.name], texts)
    many = probe.windows(config, data, plan, devices)
    alone = probe.windows(config, data, plan, devices[:1])
    for one, all_ in zip(alone, many, strict=True):
        result |= cpu_of(one, all_, kinds[one.name])
    print_result(result)


def sums_of(window: Any, kinds: Kinds, texts: list[str]) -> dict[str, Any]:
    """Bytes and number of a phase's sums over devices, per step.

    Args:
        window: the phase's `probe.Window`, called once.
        kinds: of it.
        texts: of the programs that run from now on, as `probe.programs` adds them.
    """
    from benchmarks.probe import all_reduces

    sent = messages = 0
    for window.start, number in kinds:
        del texts[:]
        window()
        sums = [size for text in texts for size in all_reduces(text)]
        sent += number * sum(sums)
        messages += number * len(sums)
    steps = window.phase.total_steps
    return {
        f'{window.name}_bytes_per_step': sent / steps,
        f'{window.name}_sums_per_step': messages / steps,
    }


def cpu_of(one: Any, all_: Any, kinds: Kinds) -> dict[str, Any]:
    """CPU time of a phase's steps, by its windows on one device and on all of them."""
    from benchmarks.timing import interleaved

    spent, result = {'one': 0.0, 'all': 0.0}, {}
    for begin, number in kinds:
        one.start = all_.start = begin
        found = interleaved({'one': one, 'all': all_}, _ROUNDS.value)
        for name, timing in found.items():
            spent[name] += timing.cpu * number
    for name, seconds in spent.items():
        each = 1e3 * seconds / one.phase.total_steps
        print(f'{one.name:<12} {name:<4} {each:9.2f} ms CPU a step')
        result[f'{one.name}_{name}_cpu_ms'] = each
    return result | {f'{one.name}_cpu_over_one_device': spent['all'] / spent['one']}


if __name__ == '__main__':
    start(main, parse)
