"""One phase as it trains here: what is saved of it, what is told, and how it is left."""

import io
import logging
import time
from typing import TYPE_CHECKING, Any, NoReturn, Self

from dpaf_jax.privacy.accounting import spent_so_far
from dpaf_jax.privacy.class_histogram import CLASSES
from dpaf_jax.runtime import parallel, processes
from dpaf_jax.training.checkpoint import Checkpoints
from dpaf_jax.training.history import History
from dpaf_jax.training.phase import Phase
from dpaf_jax.training.progress import Progress, Rows, TensorBoard
from dpaf_jax.training.resume import Stops
from dpaf_jax.training.signals import Interrupted
from dpaf_jax.training.workdir import Workdir

if TYPE_CHECKING:
    from dpaf_jax.training.run import Run


class Session:
    """Of one process; the first one tells, all of them save.

    Args:
        run: that trains.
        phase: of it.
        checkpoints: of the phase.
        step: from which it goes on.
    """

    def __init__(self, run: 'Run', phase: Phase, checkpoints: Checkpoints, step: int):
        self._run, self._phase, self._checkpoints = run, phase, checkpoints
        self._stops, self._saved_at = Stops(Workdir(run.workdir)), time.monotonic()
        self._board: TensorBoard | None = None
        history = None
        if processes.is_first():
            history = History(run.workdir)
            history.truncate(phase.name, step)
            self._board = TensorBoard(run.workdir, phase.name, history.rows())
            if step:
                logging.info('%s: goes on at %s', phase.name, self._at(step))
        self._rows = Rows(
            phase.name,
            phase.total_steps,
            history,
            self._board,
            start_step=step,
            are_held=not run.repeats_bits,
        )
        self._progress = Progress(
            phase.name,
            phase.total_steps,
            phase.images,
            planned_epsilon=run.plan.epsilon,
            epsilon_at=lambda at: spent_so_far(
                run.plan, {CLASSES: 1, **phase.charged(at)}
            ),
            rows=self._rows,
            # The other processes only look for NaN.
            stream=None if processes.is_first() else io.StringIO(),
            records=run.config.data.records,
        )
        processes.from_first(self._stops.begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        if error is None:
            self._progress.close()
        if self._board:
            self._board.close()

    def resumed(self, state: Any, step: int) -> None:
        """Shows what a resumed phase goes on from: a state on the host."""
        if self._board and step:
            self._board.picture(self._phase.picture(state), step)

    def told(self, step: int, metrics: dict[str, Any]) -> None:
        """Notes a window's end: from now on a kill would lose something."""
        if not self._run.stop.unsaved:  # nothing has left the process yet
            self._run.stop.unsaved = True
            processes.from_first(self._stops.compute)
        self._progress.update(step, metrics)

    @property
    def is_save_due(self) -> bool:
        """Whether the last checkpoint is old."""
        since = time.monotonic() - self._saved_at
        return since > self._run.config.run.checkpoint_seconds

    def save(self, step: int, placed: Any, ends: bool = False) -> Any:
        """Checkpoint and picture; returns the state on the host.

        Args:
            step: that the state is of.
            placed: the state, replicated.
            ends: nothing further was seen by anybody, nor will be.
        """
        state = parallel.unreplicate(placed)
        self._run.check_same('replicas', parallel.alike(state))
        self._checkpoints.save(step, state)
        self._rows.write()

        def note() -> None:
            assert self._board
            self._board.picture(self._phase.picture(state), step)
            if ends:
                self._stops.end()

        processes.from_first(note)
        self._saved_at = time.monotonic()
        return state

    def leave(self, step: int, placed: Any, number: int = 0) -> NoReturn:
        """Saves, and ends the run as the signal asks; 0: the one that came here."""
        self.save(step, placed, ends=True)
        at = f'{self._phase.name} {self._at(step)}'
        raise Interrupted(
            number or self._run.stop.signal_number, f'stopped at {at} and saved'
        )

    def _at(self, step: int) -> str:
        return f'step {step} of {self._phase.total_steps}'
