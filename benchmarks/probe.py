"""A run without data or privacy to speak of: random images, real phases, no training.

What a benchmark times is the method's own window on the run's own devices. Noise costs the
same whatever its size, so nothing is calibrated.
"""

import contextlib
import dataclasses
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

from dpaf_jax import methods
from dpaf_jax.config import Config
from dpaf_jax.data import Dataset, Manifest
from dpaf_jax.data.manifest import Settings
from dpaf_jax.networks import layers
from dpaf_jax.networks.layers import NUMBERS
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.runtime import parallel
from dpaf_jax.training.phase import Phase
from dpaf_jax.training.run import Run

BYTES = {'pred': 1, 's8': 1, 'u8': 1, 'bf16': 2, 'f16': 2}  # others: bits / 8
ALL_REDUCE = re.compile(r'= (.*?) all-reduce(?:-start)?\(')
ARRAY = re.compile(r'(\w+)\[([\d,]*)\]')


def random_images(config: Config, number: int) -> Dataset:
    """Uniform pixels, labels in turn."""
    data, rng = config.data, np.random.default_rng(0)
    shape = (number, data.image_size, data.image_size, data.channels)
    images = rng.integers(256, size=shape, dtype=np.uint8)
    labels = np.arange(number, dtype=np.int32) % data.num_classes
    manifest = Manifest(
        source=data.source,
        image_size=data.image_size,
        channels=data.channels,
        num_classes=data.num_classes,
        class_names=tuple(map(str, range(data.num_classes))),
        num_examples=number,
        num_present=number,
        num_test=0,
        checksum='0' * 64,
        settings=Settings.of(data),
    )
    index = np.arange(number)
    return Dataset(images, labels, index, images[:0], labels[:0], manifest)


def rough_plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The method's plan with noise multipliers of 1: found at once, and cost the same."""

    def settle(mechanism: Any, *_: Any) -> Any:
        return dataclasses.replace(mechanism, noise_multiplier=1.0)

    with mock.patch.multiple(
        accounting,
        calibrate=settle,
        epsilon_pld=lambda event, delta: 1.0,
        epsilon_rdp=lambda event, delta: 1.0,
    ):
        return methods.plan(config, num_examples)


class Window:
    """Calls one phase's window at one step, step 0 at first, over and over."""

    def __init__(self, run: Run, phase: Phase):
        self.phase, self.name, self.steps, self.start = phase, phase.name, 0, 0
        self.state = parallel.replicate(phase.init(), run.devices)

    def __call__(self) -> Any:
        self.state, end, _ = self.phase.window(self.state, self.start)
        self.steps = end - self.start
        return jax.block_until_ready(self.state)

    def kinds(self) -> list[tuple[int, int]]:
        """A step to start at and the number of windows alike, after a first call.

        Windows are alike that are charged for as many steps of mechanisms: a phase may ask
        the data at its first window and go on by post-processing.
        """
        starts: dict[int, list[int]] = {}
        for start in range(0, self.phase.total_steps, self.steps):
            before = sum(self.phase.charged(start).values())
            after = sum(self.phase.charged(start + self.steps).values())
            starts.setdefault(after - before, []).append(start)
        return [(each[0], len(each)) for each in starts.values()]


@dataclasses.dataclass
class Probe(Run):
    """A `Run` whose phases are set up and not trained."""

    windows: list[Window] = dataclasses.field(default_factory=list)

    def train(self, phase: Phase) -> Any:
        """Keeps the phase's window; returns its start."""
        self.windows.append(Window(self, phase))
        return phase.init()


def windows(
    config: Config, data: Dataset, plan: PrivacyPlan, devices: Sequence[jax.Device]
) -> list[Window]:
    """The windows of a method's phases, in order; nothing is compiled yet."""
    probe = Probe(
        workdir=pathlib.Path(tempfile.gettempdir()),  # nothing is written there
        config=config,
        plan=plan,
        data=data,
        keys=RunKeys(bytes(32), 'f' * 64),
        devices=devices,
    )

    methods.get(config.method).train(probe)
    return probe.windows


@contextlib.contextmanager
def native_convolution() -> Iterator[None]:
    """Traces with XLA's convolution and its gradients, with or without `vmap`."""

    def native(maps: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
        return jax.lax.conv_general_dilated(
            maps, kernel, (stride, stride), 'SAME', dimension_numbers=NUMBERS
        )

    with mock.patch.object(layers, '_convolve', native):
        yield


@contextlib.contextmanager
def programs() -> Iterator[list[str]]:
    """Notes the text of every program that phases compile inside, in order of calls."""
    texts: list[str] = []
    pmapped = parallel.pmapped

    def noting(fn: Any, devices: Any, donate: Any = ()) -> Callable[..., Any]:
        compiled: Any = pmapped(fn, devices, donate)  # jax's, with `lower`

        def call(*args: Any) -> Any:
            texts.append(compiled.lower(*args).compile().as_text())
            return compiled(*args)

        return call

    with mock.patch.object(parallel, 'pmapped', noting):
        yield texts


class Cost(NamedTuple):
    """Of one program, as written, before the compiler improves it.

    Attributes:
        calls: in one call of the window.
        flops: of one call, on one device.
    """

    calls: int
    flops: float


@contextlib.contextmanager
def costs() -> Iterator[dict[str, Cost]]:
    """Notes what phases would compute inside; nothing is compiled, results are shapes."""
    found: dict[str, Cost] = {}

    def counting(fn: Any, devices: Any, donate: Any = ()) -> Callable[..., Any]:
        mapped = jax.pmap(fn, axis_name=parallel.AXIS, devices=devices)
        made: list[Any] = []

        def call(*args: Any) -> Any:
            name = getattr(fn, '__name__', None) or fn.func.__name__
            if not made:
                made.append(mapped.lower(*args))
            calls = found[name].calls + 1 if name in found else 1
            found[name] = Cost(calls, made[0].cost_analysis()['flops'])
            return made[0].out_info

        return call

    with mock.patch.object(parallel, 'pmapped', counting):
        yield found


def all_reduces(text: str) -> list[int]:
    """Bytes of each sum over devices in a compiled program, per device.

    XLA has merged and dropped what it can. What stands in a loop is counted once: on CPU
    windows are unrolled.
    """
    return [_bytes(shape) for shape in ALL_REDUCE.findall(text)]


def _bytes(shapes: str) -> int:
    total = 0
    for kind, sides in ARRAY.findall(shapes):
        each = BYTES.get(kind) or int(re.sub(r'\D', '', kind)) // 8
        total += each * int(np.prod([int(s) for s in sides.split(',') if s]))
    return total
