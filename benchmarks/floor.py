"""A window against the sum of its parts, and each part against what the machine could do.

    python -m benchmarks.floor --config=configs/mnist.py:printed

Each phase of the config's method runs whole windows on random images; then the same windows'
parts alone: every compiled program with the arguments it had, and `host`, the window with all
programs answering at once. Windows that ask the data and windows that do not are measured
apart, per step. `floor` is the larger of a program's operations over the machine's rate in
products and its bytes, as the compiler counts them, over the machine's rate in copies, both
measured here: what takes less has its bytes in caches. Nothing is donated, so that calls can
be repeated. `peak_mib` is of this process after the windows, before the parts. The
last line is one JSON object.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import jax
from absl import flags

from benchmarks import probe
from benchmarks.rates import copy_rate, matrix_rate
from benchmarks.timing import interleaved, peak_mib, print_result
from dpaf_jax.config import from_config_dict
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.command import prepare_jax, require, start
from dpaf_jax.runtime.config_flag import CONFIG, parse
from dpaf_jax.runtime.progress import examples_until

HOST = 'host'
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Timed windows.', lower_bound=1)
_IMAGES = flags.DEFINE_integer(
    'images', 0, 'N; default: of the config, or 60000.', lower_bound=0
)


class Call(NamedTuple):
    """One call of a compiled program."""

    name: str
    program: Any
    args: tuple[Any, ...]
    result: Any

    def again(self) -> Any:
        """The same call; waits."""
        return jax.block_until_ready(self.program(*self.args))


class Programs:
    """Compiles what phases ask for, and notes or answers their calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._noting = False
        self._answers: Iterator[Call] | None = None

    def pmapped(self, fn: Any, devices: Any, donate: Any = ()) -> Callable[..., Any]:
        """Stands for `parallel.pmapped`."""
        del donate
        mapped = jax.pmap(fn, axis_name=parallel.AXIS, devices=devices)
        name = getattr(fn, '__name__', None) or fn.func.__name__
        made: dict[str, Any] = {}

        def call(*args: Any) -> Any:
            if self._answers is not None:
                return next(self._answers).result
            shapes = str(jax.tree.map(jax.typeof, args))
            if shapes not in made:
                made[shapes] = mapped.lower(*args).compile()
            result = made[shapes](*args)
            if self._noting:
                self.calls.append(Call(name.strip('_'), made[shapes], args, result))
            return result

        return call

    def note(self, window: Callable[[], Any]) -> None:
        """Keeps a window's calls, and no others."""
        self.calls, self._noting = [], True
        window()
        self._noting = False

    def answered(self, window: Callable[[], Any]) -> Callable[[], Any]:
        """The window with every program's result there at once: what the host does."""

        def call() -> Any:
            self._answers = iter(self.calls)
            result = window()
            self._answers = None
            return result

        return call

    def by_name(self) -> dict[str, list[Call]]:
        """The calls of each program, in order."""
        found: dict[str, list[Call]] = {}
        for call in self.calls:
            found.setdefault(call.name, []).append(call)
        return found


@contextlib.contextmanager
def noted() -> Iterator[Programs]:
    """Phases that are made inside compile by what is given."""
    programs = Programs()
    with mock.patch.object(parallel, 'pmapped', programs.pmapped):
        yield programs


def floor_seconds(calls: Sequence[Call], matrix: float, copy: float) -> float:
    """The least time of some calls at these rates."""
    seconds = 0.0
    for call in calls:
        cost = call.program.cost_analysis()
        seconds += max(
            cost.get('flops', 0.0) / matrix, cost.get('bytes accessed', 0.0) / copy
        )
    return seconds


def parts(
    programs: Programs, window: probe.Window, rounds: int, rates: tuple[float, float]
) -> dict[str, Any]:
    """Milliseconds of a step: `whole`, and its parts with their floors."""
    programs.note(window)
    by_name = programs.by_name()

    def in_turn(calls: list[Call]) -> Callable[[], Any]:
        return lambda: [call.again() for call in calls][-1]

    candidates: dict[str, Callable[[], Any]] = {'whole': window}
    candidates[HOST] = programs.answered(window)
    candidates |= {name: in_turn(calls) for name, calls in by_name.items()}
    found = interleaved(candidates, rounds)
    ms = {name: 1e3 * timing.wall / window.steps for name, timing in found.items()}
    floors = {
        name: 1e3 * floor_seconds(calls, *rates) / window.steps
        for name, calls in by_name.items()
    }
    whole = ms.pop('whole')
    return {
        'whole_ms': whole,
        'parts_ms': ms,
        'whole_over_parts': whole / sum(ms.values()),
        'floors_ms': floors,
        'whole_over_floor': whole / sum(floors.values()),
        'images_per_second': 1e3 * examples_until(window.phase.images, 1) / whole,
    }


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    (given,) = require(argv, {'config': CONFIG.value})
    prepare_jax()
    config = from_config_dict(given)
    number = _IMAGES.value or config.data.num_examples or 60000
    data, plan = probe.random_images(config, number), probe.rough_plan(config, number)
    rates = matrix_rate(), copy_rate()
    result: dict[str, Any] = {'matrix_rate': rates[0], 'copy_rate': rates[1]}
    with noted() as programs:
        windows = probe.windows(config, data, plan, jax.local_devices()[:1])
        kinds = []
        for window in windows:
            window()
            kinds.append(window.kinds())
            for begin, _ in kinds[-1]:
                window.start = begin
                window()
        result['peak_mib'] = peak_mib()
        for window, starts in zip(windows, kinds, strict=True):
            for begin, times in starts:
                window.start = begin
                row = parts(programs, window, _ROUNDS.value, rates)
                name = f'{window.name}, {times} windows of {window.steps} steps'
                result[name] = row
                print(f'{name}: {row["whole_ms"]:.2f} ms a step')
                for part, spent in row['parts_ms'].items():
                    least = row['floors_ms'].get(part)
                    tail = '' if least is None else f', at least {least:.2f}'
                    print(f'    {part:<16} {spent:9.2f} ms{tail}', flush=True)
    print_result(result)


if __name__ == '__main__':
    start(main, parse)
