"""Images that are streamed, against images that lie on the devices.

    python -m benchmarks.streaming --config=configs/dpgen.py:mnist

The method's last phase runs a few windows as training does, one ahead of the device, on
random images in a file: once they are copied to the devices before, once each window's are
read and sent while the device computes the one before. `streamed_over_resident` is wall time
of a step; near 1 the prefetch hides. The last line is one JSON object.
"""

import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Sequence
from unittest import mock

import jax
import numpy as np
from absl import flags

from benchmarks import probe
from benchmarks.timing import print_result
from dpaf_jax.config import from_config_dict
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.command import prepare_jax, require, start
from dpaf_jax.runtime.config_flag import CONFIG, parse
from dpaf_jax.runtime.progress import examples_until
from dpaf_jax.training import input_pipeline

_IMAGES = flags.DEFINE_integer('images', 60000, 'N.', lower_bound=1)
_WINDOWS = flags.DEFINE_integer('windows', 8, 'In a row, timed.', lower_bound=2)
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Of each, in turn.', lower_bound=1)


def in_a_row(window: probe.Window, number: int) -> tuple[float, float]:
    """Wall and CPU seconds of a step, one window ahead of the device."""
    start = time.perf_counter(), time.process_time()
    state, ahead, steps = window.state, None, 0
    for index in range(number):
        state, end, metrics = window.phase.window(state, index * window.steps)
        steps += end - index * window.steps
        jax.block_until_ready(ahead)
        ahead = parallel.first(metrics)
    window.state = jax.block_until_ready(state)
    spent = time.perf_counter() - start[0], time.process_time() - start[1]
    return spent[0] / steps, spent[1] / steps


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    (given,) = require(argv, {'config': CONFIG.value})
    prepare_jax()
    config = from_config_dict(given)
    plan = probe.rough_plan(config, _IMAGES.value)
    with tempfile.TemporaryDirectory() as folder:
        data = probe.random_images(config, _IMAGES.value)
        path = pathlib.Path(folder) / 'images.npy'
        np.save(path, data.images)
        data = dataclasses.replace(data, images=np.load(path, mmap_mode='r'))
        ways = {}
        for name, share in (('resident', input_pipeline.SHARE), ('streamed', 0.0)):
            with mock.patch.object(input_pipeline, 'SHARE', share):
                ways[name] = probe.windows(config, data, plan, jax.local_devices())[-1]
                ways[name]()
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(_ROUNDS.value):
            for name, window in ways.items():
                seen[name].append(in_a_row(window, _WINDOWS.value))
    found = {name: np.median(times, axis=0) for name, times in seen.items()}
    for name, (wall, cpu) in found.items():
        print(f'{name:<9} {1e3 * wall:9.2f} ms {1e3 * cpu:9.2f} ms CPU a step')
    wall, cpu = found['streamed'] / found['resident']
    print_result(
        {
            'streamed_over_resident': float(wall),
            'streamed_over_resident_cpu': float(cpu),
            'data_mib': data.images.nbytes / 2**20,
            'images_per_step': examples_until(ways['resident'].phase.images, 1),
        }
    )


if __name__ == '__main__':
    start(main, parse)
