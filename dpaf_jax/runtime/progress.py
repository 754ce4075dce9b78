"""How far something is: a line on the terminal, with its rate and the time left."""

import collections
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from dpaf_jax.runtime.text import duration

ProgressFn = Callable[[int], None]  # given how many steps are done
TTY_SECONDS = 0.5
LOG_SECONDS = 10.0
RATE_SPAN = 30  # lines over which a rate is measured


def examples_until(examples: float | Callable[[int], float], step: int) -> float:
    """Of `examples` as `ProgressLine` has them, those until a step is reached."""
    return examples(step) if callable(examples) else step * examples


def added_up(on_progress: ProgressFn) -> ProgressFn:
    """From steps of each part to steps so far; parts may be done in several threads."""
    lock, done = threading.Lock(), 0

    def on_part(steps: int) -> None:
        nonlocal done
        with lock:
            done += steps
            on_progress(done)

    return on_part


class ProgressLine:
    """`features  image 1200/20000 · 300 images/s · 1 min 03 s left`.

    Rewritten in place on a terminal; in a log or a notebook a line every ten seconds.

    The rate counts by `examples`, a *public* expected number of images in a step. How many
    a Poisson batch really has is private, and a rate computed from it would tell.

    Args:
        name: of what is done.
        total: steps.
        examples: images of a step, or how many there are until a step is reached; 0: no
            rate is shown.
        records: what examples are called.
        unit: what a step is called.
        note: gives what stands behind the rest.
        every_seconds: between lines; default 0.5 on a terminal, else 10.
        stream: default: standard output.
        clock: seconds, monotonic; for tests.
    """

    def __init__(
        self,
        name: str,
        total: int,
        examples: float | Callable[[int], float],
        *,
        records: str = 'images',
        unit: str = 'step',
        note: Callable[[], str] = str,
        every_seconds: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._name, self._total, self._unit = name, total, unit
        self._examples, self._records, self._note = examples, records, note
        self._stream = sys.stdout if stream is None else stream
        self._tty = self._stream.isatty()
        default = TTY_SECONDS if self._tty else LOG_SECONDS
        self._every = default if every_seconds is None else every_seconds
        self._clock = clock
        self._started = self._shown_at = clock()
        self._step = self._width = 0
        self._marks: collections.deque[tuple[float, int]] = collections.deque(
            maxlen=RATE_SPAN
        )

    def update(self, step: int) -> None:
        """Notes that `step` steps are done."""
        self._step = step
        if not self._marks:  # what comes before is mostly compilation
            self._marks.append((self._clock(), step))
        if step >= self._total or self._clock() - self._shown_at >= self._every:
            self._show()

    def close(self) -> None:
        """Ends the line."""
        if self._tty and self._width:
            with contextlib.suppress(OSError):
                print(file=self._stream, flush=True)
            self._width = 0

    def _show(self) -> None:
        self._marks.append((self._clock(), self._step))
        self._shown_at = self._clock()
        line = self._line()
        if self._tty:
            # Blanks wipe out the end of a longer line before; what is logged overwrites it.
            with contextlib.suppress(OSError):  # it has closed: SIGHUP ends the run
                self._stream.write(line.ljust(self._width) + '\r')
                self._stream.flush()
            self._width = len(line)
        else:
            print(line, file=self._stream, flush=True)

    def _work(self, first: int, last: int) -> float:
        """Images between two steps; steps, where no images are told."""
        examples = self._examples or 1.0
        return examples_until(examples, last) - examples_until(examples, first)

    def _line(self) -> str:
        parts = [f'{self._name}  {self._unit} {self._step}/{self._total}']
        (before, first), (now, last) = self._marks[0], self._marks[-1]
        if now > before and last > first:
            rate = self._work(first, last) / (now - before)
            if self._examples:
                parts.append(f'{rate:.0f} {self._records}/s')
            if self._step < self._total:
                left = self._work(self._step, self._total) / rate
                parts.append(f'{duration(left)} left')
        if self._step >= self._total:
            parts.append(f'done in {duration(self._clock() - self._started)}')
        return ' · '.join(filter(None, (*parts, self._note())))


class Teller:
    """Says lines, and how far things are, for what takes long.

    Args:
        say: is given lines.
        stream: of the lines of progress, as for `ProgressLine`.
        records: what is counted, in the plural.
        on_step: is called with each step, and may end what is done by an error.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        stream: TextIO | None = None,
        records: str = 'images',
        on_step: Callable[[], None] = lambda: None,
    ):
        self.say = say
        self._stream, self._records, self._on_step = stream, records, on_step

    @contextlib.contextmanager
    def progress(
        self, name: str, total: int, examples: float = 1.0, unit: str = ''
    ) -> Iterator[ProgressFn]:
        """A function that tells how much is done of `total`.

        Args:
            name: of what is done.
            total: of its steps; by default each is one record, and is called so.
            examples: of a step.
            unit: what a step is called.
        """
        line = ProgressLine(
            name,
            total,
            examples,
            records=self._records,
            unit=unit or self._records.removesuffix('s'),
            stream=self._stream,
        )

        def update(step: int) -> None:
            self._on_step()
            line.update(step)

        try:
            yield update
        finally:
            line.close()
