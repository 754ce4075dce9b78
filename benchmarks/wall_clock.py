"""Where the time of a whole job goes: from the command to the report.

    python -m benchmarks.wall_clock --config=configs/recommended.py:digits

Runs every stage in this process, in a fresh folder (--workdir to keep it). Prints for each
part wall time, CPU time of all cores, how long programs were traced and compiled meanwhile,
and steps a second: of the imports, of each stage, and inside stages of training's phases,
classifiers and fidelity. A part that holds others shows what is left of it. Compiled programs
are kept as in any command; with JAX_COMPILATION_CACHE_DIR= all are compiled anew. To see the
rate of a long job, shorten it: --config.dpaf.generator_steps=50. The last line is one JSON
object.
"""

import time

START = time.time()  # before anything is imported

import contextlib  # noqa: E402
import dataclasses  # noqa: E402
import pathlib  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from typing import Any  # noqa: E402
from unittest import mock  # noqa: E402

from absl import flags  # noqa: E402

from dpaf_jax.runtime.command import fail, prepare_jax, require, start  # noqa: E402
from dpaf_jax.runtime.config_flag import CONFIG, parse  # noqa: E402
from dpaf_jax.runtime.errors import UserError  # noqa: E402

_WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Folder of the run; default: one that is deleted.'
)
COMPILING = '/jax/core/compile/'
Span = tuple[float, float]


@dataclasses.dataclass
class Part:
    """One part of the job; `steps` where it has some."""

    name: str
    span: Span
    cpu: float
    steps: int = 0


@dataclasses.dataclass
class Ledger:
    """What was done when: parts in the order of their ends, and spans of compilation."""

    parts: list[Part] = dataclasses.field(default_factory=list)
    compiling: list[Span] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def part(self, name: str, steps: int = 0) -> Iterator[None]:
        """Times what is done inside."""
        begin, cpu = time.time(), time.process_time()
        yield
        spent = time.process_time() - cpu
        self.parts.append(Part(name, (begin, time.time()), spent, steps))

    def listen(self, event: str, start: float, end: float, **_: Any) -> None:
        """Stands for a listener of JAX's monitoring."""
        if event.startswith(COMPILING):
            self.compiling.append((start, end))

    def rows(self) -> list[dict[str, Any]]:
        """One a part: seconds of its own, and of these compiling; steps a second of the rest.

        Programs that two threads compile at once count once.
        """
        rows = []
        for part in self.parts:
            others = [p for p in self.parts if p is not part and _in(p, part)]
            inner = [p.span for p in others]
            covered = covered_seconds(inner, part.span)
            cpu = part.cpu - sum(p.cpu for p in others)
            seconds = part.span[1] - part.span[0] - covered
            compiling = covered_seconds(self.compiling, part.span) - covered_seconds(
                _common(self.compiling, inner), part.span
            )
            row = {
                'part': part.name,
                'seconds': seconds,
                'cpu': cpu,
                'compiling': compiling,
            }
            if part.steps:
                row['steps_per_second'] = part.steps / max(seconds - compiling, 1e-9)
            rows.append(row)
        return rows


def _in(inner: Part, outer: Part) -> bool:
    return outer.span[0] <= inner.span[0] and inner.span[1] <= outer.span[1]


def _common(spans: Sequence[Span], within: Sequence[Span]) -> list[Span]:
    """The parts of spans that lie in some of the others."""
    return [
        (max(a, c), min(b, d))
        for a, b in spans
        for c, d in within
        if max(a, c) < min(b, d)
    ]


def covered_seconds(spans: Sequence[Span], within: Span) -> float:
    """Seconds of `within` that are in at least one of the spans."""
    seconds, reached = 0.0, within[0]
    for begin, end in sorted(spans):
        begin, end = max(begin, reached), min(end, within[1])
        if end > begin:
            seconds, reached = seconds + end - begin, end
    return seconds


def _timed(ledger: Ledger, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with ledger.part(name):
            return fn(*args, **kwargs)

    return call


@contextlib.contextmanager
def inside_stages(ledger: Ledger) -> Iterator[None]:
    """Times phases of training, classifiers and fidelity as parts of their own."""
    from dpaf_jax.evaluation import fidelity, utility
    from dpaf_jax.training.run import Run

    train = Run.train

    def phase(self: Any, asked: Any) -> Any:
        name = f'train: {asked.name}'
        if any(part.name == name for part in ledger.parts):
            return train(self, asked)  # the release stage reads the last checkpoint
        with ledger.part(name, asked.total_steps):
            return train(self, asked)

    found = {
        utility: ('evaluate', 'evaluate: classifiers'),
        fidelity: ('evaluate', 'evaluate: fidelity'),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Run, 'train', phase))
        for module, (function, name) in found.items():
            timed = _timed(ledger, name, getattr(module, function))
            stack.enter_context(mock.patch.object(module, function, timed))
        yield


def run(config: Any, workdir: pathlib.Path, ledger: Ledger) -> Any:
    """Every stage of the job; returns what the evaluation has found."""
    import jax

    from dpaf_jax.pipeline.synthesize import Pipeline
    from dpaf_jax.runtime.files import read_json

    ledger.parts.append(Part('import', (START, time.time()), time.process_time()))
    listener: Any = ledger.listen
    jax.monitoring.register_event_time_span_listener(listener)
    with inside_stages(ledger):
        pipeline = Pipeline(config, workdir)
        for stage in pipeline.stages():
            with ledger.part(stage):
                pipeline.run(stage)
    return read_json(pipeline.workdir.evaluation)


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    (config,) = require(argv, {'config': CONFIG.value})
    prepare_jax()
    ledger = Ledger()
    with contextlib.ExitStack() as stack:
        folder = _WORKDIR.value or stack.enter_context(tempfile.TemporaryDirectory())
        try:
            found = run(config, pathlib.Path(folder), ledger)
        except UserError as error:
            fail(str(error))
    from benchmarks.timing import peak_mib, print_result

    rows, whole = ledger.rows(), time.time() - START
    compiling = covered_seconds(ledger.compiling, (START, time.time()))
    total = {'part': 'all', 'seconds': whole, 'compiling': compiling}
    for row in [*rows, total | {'cpu': time.process_time()}]:
        rate = row.get('steps_per_second')
        tail = f', {rate:.2f} steps/s' if rate else ''
        print(
            f'{row["part"]:<24} {row["seconds"]:8.1f} s ({row["cpu"]:.1f} s of CPU), '
            f'of these compiling {row["compiling"]:6.1f} s{tail}'
        )
    print(f'peak memory {peak_mib():.0f} MiB')
    accuracy = found['accuracy'].get('synthetic', {})
    print_result(
        {
            'seconds': whole,
            'compiling': compiling,
            'peak_mib': peak_mib(),
            'parts': rows,
            'accuracy': {name: each['mean'] for name, each in accuracy.items()},
            'fidelity': found.get('fidelity', {}),
        }
    )


if __name__ == '__main__':
    start(main, parse)
