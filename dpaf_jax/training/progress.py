"""What a run tells while it runs: a line on the terminal, and curves.

Only values that epsilon covers may come in: losses on noisy aggregates and on fakes,
public step counts, epsilon. Whoever may read the release may read them.

Beside them stand times: seconds of a row, the rate and what is left on the terminal, the
clock of an event. How long a step takes may depend on real data, and no epsilon covers
that: leave times out of what is handed on.

A run that was killed computes again what came after its last checkpoint. What it had told
of that is taken back (`History.truncate`, `TensorBoard`), but for lines on a terminal,
which have steps, rates and epsilon alone. Where another result may come out, as on a GPU,
nothing is told before a checkpoint has it.
"""

import collections
import math
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import numpy as np
from PIL import Image

from dpaf_jax.runtime.text import duration, number
from dpaf_jax.training.history import History

ROWS_PER_PHASE = 200  # of the history, at most
TTY_SECONDS = 0.5
LOG_SECONDS = 10.0
EPSILON_SECONDS = 10.0  # accounting takes time: between two lines epsilon may be old
NOT_CURVES = ('phase', 'step', 'seconds')  # of a row
RATE_SPAN = 30  # lines over which images/s is measured
PATIENCE = 100  # updates without a finite value: some report a metric now and then

Scalar = Any  # a float, or an array of one number


class TensorBoard:
    """Scalars and sample grids for TensorBoard, in `<workdir>/tensorboard`.

    What lies there is deleted and made again from the history: a process that was killed
    may have left events of steps that are now computed again.

    Args:
        workdir: of the run.
        history: rows that are to stay.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        history: Sequence[Mapping[str, Any]] = (),
    ):
        # Its import takes a while, and only runs that train need it.
        from tensorboardX import SummaryWriter

        folder = pathlib.Path(workdir) / 'tensorboard'
        if folder.exists():
            shutil.rmtree(folder)
        self._writer = SummaryWriter(str(folder))
        for row in history:
            self.row(row)

    def row(self, row: Mapping[str, Any]) -> None:
        """Adds a row of the history: one point to each curve `<phase>/<name>`."""
        for name, value in row.items():
            if name not in NOT_CURVES and value is not None and math.isfinite(value):
                self._writer.add_scalar(f'{row["phase"]}/{name}', value, row['step'])

    def picture(self, picture: Image.Image | None, step: int) -> None:
        """Adds a picture of synthetic images, such as a `pictures.sample_grid`."""
        if picture is not None:
            pixels = np.asarray(picture.convert('RGBA'))
            self._writer.add_image('samples', pixels, step, dataformats='HWC')

    def close(self) -> None:
        self._writer.close()


class Progress:
    """Tells where a phase is: a line on the terminal, rows in the history.

    `gan  step 1200/25000 · 1830 images/s · 4 min 10 s left · ε 2.31 of 10`, rewritten
    in place on a terminal; in a log or a notebook a line every ten seconds.

    The rate counts by `examples`, the *public* expected number of images in a step. How many
    a Poisson batch really has is private, and a rate computed from it would tell.

    Args:
        phase: its name.
        total_steps: when it is done.
        examples: expected images per step, public; 0: no rate is shown. Or a function of a
            step, where steps differ: images until it is reached.
        planned_epsilon: of the whole run; None: no epsilon is shown.
        epsilon_at: epsilon spent by the whole run when this phase has reached a step.
        every_seconds: between lines; default 0.5 on a terminal, else 10.
        writer: where metrics go as curves too.
        history: where a row goes about every 200th part of the phase: phase, step,
            seconds, epsilon_spent, and each metric's mean since the row before.
        start_step: of a resumed run.
        stream: default: standard output.
        holds_rows: rows wait for `write_rows`: a step that is computed again, after a kill,
            may give others under the same noise, and the two together are not covered.
        records: what examples are called.
        clock: seconds, monotonic; for tests.
    """

    def __init__(
        self,
        phase: str,
        total_steps: int,
        examples: float | Callable[[int], float],
        planned_epsilon: float | None = None,
        epsilon_at: Callable[[int], float | None] | None = None,
        every_seconds: float | None = None,
        writer: TensorBoard | None = None,
        *,
        history: History | None = None,
        start_step: int = 0,
        stream: TextIO | None = None,
        holds_rows: bool = False,
        records: str = 'images',
        clock: Callable[[], float] = time.monotonic,
    ):
        self._phase, self._total = phase, total_steps
        self._examples, self._records = examples, records
        self._planned, self._epsilon_at = planned_epsilon, epsilon_at
        self._writer, self._history = writer, history
        self._stream = sys.stdout if stream is None else stream
        self._tty = self._stream.isatty()
        default = TTY_SECONDS if self._tty else LOG_SECONDS
        self._every = default if every_seconds is None else every_seconds
        self._clock = clock
        self._started = self._shown_at = clock()
        self._earlier = history.seconds(phase) if history else 0.0
        self._row_steps = max(1, math.ceil(total_steps / ROWS_PER_PHASE))
        self._row_at = self._step = start_step
        self._holds_rows = holds_rows
        self._rows: list[dict[str, Any]] = []
        self._pending: dict[str, list[Scalar]] = collections.defaultdict(list)
        self._missing: dict[str, int] = collections.defaultdict(int)
        self._marks: collections.deque[tuple[float, int]] = collections.deque(
            maxlen=RATE_SPAN
        )
        self._epsilon: float | None = None
        self._epsilon_from = -math.inf
        self._width = 0

    def update(self, step: int, metrics: Mapping[str, Scalar]) -> None:
        """Notes that `step` steps are done.

        Args:
            step: steps done in this phase.
            metrics: name -> one number, on the device or not (it is not waited for
                here); NaN means that there was none this time.

        Raises:
            FloatingPointError: a metric is infinite, or has been NaN for long.
        """
        self._step = step
        for name, value in metrics.items():
            self._pending[name].append(value)
        if not self._marks:  # what comes before is mostly compilation
            self._marks.append((self._clock(), step))
        done = step >= self._total
        if done or step // self._row_steps > self._row_at // self._row_steps:
            self._end_row()
            if not self._holds_rows:
                self.write_rows()
        if done or self._clock() - self._shown_at >= self._every:
            self._show()

    def close(self) -> None:
        """Ends the line, and writes what came after the last row."""
        if self._pending:
            self._end_row()
        self.write_rows()
        if self._tty and self._width:
            print(file=self._stream, flush=True)
            self._width = 0

    def write_rows(self) -> None:
        """Writes the rows that have ended: what they tell is in a checkpoint."""
        for row in self._rows:
            if self._history:
                self._history.append(row)
            if self._writer:
                self._writer.row(row)
        self._rows.clear()

    def _end_row(self) -> None:
        values = {name: self._mean(name, v) for name, v in self._pending.items()}
        self._pending.clear()
        self._row_at = self._step
        if self._history is None and self._writer is None:
            return
        spent = self._spent(refresh=True)
        seconds = round(self._earlier + self._clock() - self._started, 3)
        row = {'phase': self._phase, 'step': self._step, 'seconds': seconds}
        row |= values if spent is None else {'epsilon_spent': spent, **values}
        self._rows.append(row)

    def _mean(self, name: str, values: list[Scalar]) -> float:
        numbers = np.array([float(np.asarray(value)) for value in values])
        here = np.flatnonzero(~np.isnan(numbers))
        if len(here):
            self._missing[name] = len(numbers) - 1 - int(here[-1])
        else:
            self._missing[name] += len(numbers)
        if np.isinf(numbers).any() or self._missing[name] >= PATIENCE:
            raise FloatingPointError(
                f'{self._phase} step {self._step}: {name} is not finite; a smaller '
                'learning rate may help'
            )
        return float(numbers[here].mean()) if len(here) else math.nan

    def _spent(self, refresh: bool = False) -> float | None:
        if self._epsilon_at is None or self._planned is None:
            return None
        if refresh or self._clock() - self._epsilon_from >= EPSILON_SECONDS:
            self._epsilon = self._epsilon_at(self._step)
            self._epsilon_from = self._clock()
        return self._epsilon

    def _show(self) -> None:
        self._marks.append((self._clock(), self._step))
        self._shown_at = self._clock()
        line = self._line()
        if self._tty:
            # Blanks wipe out the end of a longer line before; what is logged overwrites it.
            self._stream.write(line.ljust(self._width) + '\r')
            self._stream.flush()
            self._width = len(line)
        else:
            print(line, file=self._stream, flush=True)

    def _work(self, first: int, last: int) -> float:
        """Images between two steps; steps, where no images are told."""
        if callable(self._examples):
            return self._examples(last) - self._examples(first)
        return (last - first) * (self._examples or 1.0)

    def _line(self) -> str:
        parts = [f'{self._phase}  step {self._step}/{self._total}']
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
        spent = self._spent()
        if self._planned is not None and spent is not None:
            parts.append(f'ε {number(spent)} of {number(self._planned)}')
        return ' · '.join(parts)
