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
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import numpy as np
from PIL import Image

from dpaf_jax.runtime.progress import ProgressLine
from dpaf_jax.runtime.text import number
from dpaf_jax.training.history import History

ROWS_PER_PHASE = 200  # of the history, at most
EPSILON_SECONDS = 10.0  # accounting takes time: between two lines epsilon may be old
NOT_CURVES = ('phase', 'step', 'seconds')  # of a row
PATIENCE = 100  # updates without a finite value: some report a metric now and then

Scalar = Any  # a float, or an array of one number


class TensorBoard:
    """Scalars and sample grids of a phase for TensorBoard, in `<workdir>/tensorboard/<phase>`.

    What lies there is deleted and made again from the history: a process that was killed
    may have left events of steps that are now computed again.

    Args:
        workdir: of the run.
        phase: its name.
        history: rows of the run that are to stay.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        phase: str,
        history: Sequence[Mapping[str, Any]] = (),
    ):
        # Its import takes a while, and only runs that train need it.
        from tensorboardX import SummaryWriter

        folder = pathlib.Path(workdir) / 'tensorboard' / phase
        if folder.exists():
            shutil.rmtree(folder)
        self._writer = SummaryWriter(str(folder))
        for row in history:
            if row['phase'] == phase:
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


class Rows:
    """Rows of a phase: means of its metrics, watched for numbers that are none.

    About every 200th part of the phase there is one: phase, step, seconds, epsilon_spent,
    and each metric's mean since the row before.

    Args:
        phase: its name.
        total_steps: when it is done.
        history: where rows go.
        writer: where they go as curves too.
        start_step: of a resumed run.
        are_held: they wait for `write`: a step that is computed again, after a kill, may
            give others under the same noise, and the two together are not covered.
    """

    def __init__(
        self,
        phase: str,
        total_steps: int,
        history: History | None = None,
        writer: TensorBoard | None = None,
        *,
        start_step: int = 0,
        are_held: bool = False,
    ):
        self._phase, self._total = phase, total_steps
        self._history, self._writer = history, writer
        self._are_held = are_held
        self._earlier = history.seconds(phase) if history else 0.0
        self._steps = max(1, math.ceil(total_steps / ROWS_PER_PHASE))
        self._ended_at = start_step
        self._unwritten: list[dict[str, Any]] = []
        self._pending: dict[str, list[Scalar]] = collections.defaultdict(list)
        self._missing: dict[str, int] = collections.defaultdict(int)

    @property
    def are_kept(self) -> bool:
        """Whether anybody reads them; else metrics are watched alone."""
        return self._history is not None or self._writer is not None

    @property
    def has_begun(self) -> bool:
        """Whether there are metrics since the row before."""
        return bool(self._pending)

    def note(self, metrics: Mapping[str, Scalar]) -> None:
        """Adds what one window has measured; it is not waited for."""
        for name, value in metrics.items():
            self._pending[name].append(value)

    def is_due(self, step: int) -> bool:
        """Whether a row ends here."""
        return (
            step >= self._total or step // self._steps > self._ended_at // self._steps
        )

    def end(self, step: int, seconds: float, spent: float | None) -> None:
        """Ends a row at a step, so many seconds after this process has begun.

        Raises:
            FloatingPointError: a metric is infinite, or has been NaN for long.
        """
        values = {name: self._mean(name, v, step) for name, v in self._pending.items()}
        self._pending.clear()
        self._ended_at = step
        if not self.are_kept:
            return
        seconds = round(self._earlier + seconds, 3)
        row = {'phase': self._phase, 'step': step, 'seconds': seconds}
        row |= values if spent is None else {'epsilon_spent': spent, **values}
        self._unwritten.append(row)
        if not self._are_held:
            self.write()

    def write(self) -> None:
        """Writes the rows that have ended: what they tell is in a checkpoint."""
        for row in self._unwritten:
            if self._history:
                self._history.append(row)
            if self._writer:
                self._writer.row(row)
        self._unwritten.clear()

    def _mean(self, name: str, values: list[Scalar], step: int) -> float:
        numbers = np.array([float(np.asarray(value)) for value in values])
        here = np.flatnonzero(~np.isnan(numbers))
        if len(here):
            self._missing[name] = len(numbers) - 1 - int(here[-1])
        else:
            self._missing[name] += len(numbers)
        if np.isinf(numbers).any() or self._missing[name] >= PATIENCE:
            raise FloatingPointError(
                f'{self._phase} step {step}: {name} is not finite; a smaller '
                'learning rate may help'
            )
        return float(numbers[here].mean()) if len(here) else math.nan


class Progress:
    """Tells where a phase is, by a line on the terminal; and ends its rows.

    `gan  step 1200/25000 · 1830 images/s · 4 min 10 s left · ε 2.31 of 10`: a
    `ProgressLine` with epsilon.

    Args:
        phase: its name.
        total_steps: when it is done.
        examples: as `Phase.images`: *public* expected numbers, as `ProgressLine` has them.
        planned_epsilon: of the whole run; None: no epsilon is shown.
        epsilon_at: epsilon spent by the whole run when this phase has reached a step.
        rows: of the phase; default: they go nowhere.
        records: what examples are called.
        stream: as for `ProgressLine`, and so are the others.

    Attributes:
        phase: its name.
    """

    def __init__(
        self,
        phase: str,
        total_steps: int,
        examples: float | Callable[[int], float],
        planned_epsilon: float | None = None,
        epsilon_at: Callable[[int], float | None] | None = None,
        *,
        rows: Rows | None = None,
        records: str = 'images',
        every_seconds: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.phase = phase
        self._planned, self._epsilon_at = planned_epsilon, epsilon_at
        self._rows = Rows(phase, total_steps) if rows is None else rows
        self._line = ProgressLine(
            phase,
            total_steps,
            examples,
            records=records,
            note=self._note,
            every_seconds=every_seconds,
            stream=stream,
            clock=clock,
        )
        self._clock, self._started = clock, clock()
        self._step = 0
        self._epsilon: float | None = None
        self._epsilon_from = -math.inf

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
        self._rows.note(metrics)
        if self._rows.is_due(step):
            self._end_row()
        self._line.update(step)

    def close(self) -> None:
        """Ends the line, and writes what came after the last row."""
        if self._rows.has_begun:
            self._end_row()
        self._rows.write()
        self._line.close()

    def _end_row(self) -> None:
        spent = self._spent(refresh=True) if self._rows.are_kept else None
        self._rows.end(self._step, self._clock() - self._started, spent)

    def _note(self) -> str:
        spent = self._spent()
        if spent is None or self._planned is None:
            return ''
        return f'ε {number(spent)} of {number(self._planned)}'

    def _spent(self, refresh: bool = False) -> float | None:
        if self._epsilon_at is None or self._planned is None:
            return None
        if refresh or self._clock() - self._epsilon_from >= EPSILON_SECONDS:
            self._epsilon = self._epsilon_at(self._step)
            self._epsilon_from = self._clock()
        return self._epsilon
