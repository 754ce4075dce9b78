"""One run: its folder, its keys, its devices, and the loop that every phase shares."""

import contextlib
import dataclasses
import io
import logging
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import numpy as np
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.data import Dataset
from dpaf_jax.privacy.accounting import spent_so_far
from dpaf_jax.privacy.class_histogram import CLASSES
from dpaf_jax.privacy.keys import RunKeys, public_key
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release.samplers.protocol import Params, Sampler
from dpaf_jax.release.samplers.registry import preview
from dpaf_jax.runtime import parallel, processes
from dpaf_jax.training.checkpoint import NOTHING, Checkpoints, Inherited
from dpaf_jax.training.history import History
from dpaf_jax.training.phase import Phase, UnevenPhase
from dpaf_jax.training.progress import Progress, TensorBoard
from dpaf_jax.training.resume import Stops
from dpaf_jax.training.signals import Interrupted, StopRequest, WindowLeft
from dpaf_jax.training.workdir import Workdir


@dataclasses.dataclass
class Run:
    """Everything that a method needs besides its config.

    Attributes:
        data: private.
        devices: of all processes.
        inherited: what sessions on other devices have left in this workdir.
        public: images that nobody is protected in, where the config has some.
    """

    workdir: pathlib.Path
    config: Config
    plan: PrivacyPlan
    data: Dataset
    keys: RunKeys
    devices: Sequence[jax.Device]
    stop: StopRequest = dataclasses.field(default_factory=StopRequest)
    inherited: Inherited = NOTHING
    public: Dataset | None = None

    def train(self, phase: Phase) -> Any:
        """Runs a phase to its end, from its newest checkpoint if it has one.

        Returns:
            The final state as host arrays; the same as an uninterrupted run's.

        Raises:
            Interrupted: after SIGTERM or SIGINT to any process, with everything saved.
            FloatingPointError: a metric is infinite, or has long been NaN.
        """
        checkpoints = Checkpoints(
            self.workdir / 'checkpoints' / phase.name,
            self.config.run.keep_checkpoints,
            self.keys.fingerprint,
            self.inherited,
        )
        with self.stop.deferred(), contextlib.closing(checkpoints):
            start = phase.init()
            state, step = checkpoints.restore(start) or (start, 0)
            self._check_same('states', [np.int64(step), state])
            if step < phase.total_steps:
                state = self._train(phase, checkpoints, state, step)
        self.stop.check(phase.name)
        return state

    def _train(
        self, phase: Phase, checkpoints: Checkpoints, state: Any, step: int
    ) -> Any:
        settings = self.config.run
        history = board = None
        if processes.is_first():
            history = History(self.workdir)
            history.truncate(phase.name, step)
            board = TensorBoard(self.workdir, history.rows())
            if step:
                at = f'step {step} of {phase.total_steps}'
                logging.info('%s: goes on at %s', phase.name, at)
                board.picture(phase.picture(state), step)
        progress = self._progress(phase, step, history, board)
        stops = Stops(Workdir(self.workdir))
        processes.from_first(stops.begin)
        placed = parallel.replicate(state, self.devices)
        vote = parallel.Vote(self.devices)
        saved_at, ahead = time.monotonic(), None
        while step < phase.total_steps:
            # The first one compiles, and may pass over all records: both take long.
            try:
                placed, step, metrics = phase.window(placed, step)
            except WindowLeft:
                self._leave(phase, checkpoints, step, placed, board)
            if step > phase.total_steps:
                # Its noise is charged nowhere, so nothing may see its state.
                end = f'step {step} of {phase.total_steps}'
                raise RuntimeError(f'{phase.name}: a window has ended at {end}')
            if not self.stop.unsaved:  # nothing has left the process yet
                self.stop.unsaved = True
                processes.from_first(stops.compute)
            # One window ahead of the device, not more: a stop is noticed soon.
            jax.block_until_ready(ahead)
            ahead = parallel.first(metrics)
            progress.update(step, ahead)
            due = time.monotonic() - saved_at > settings.checkpoint_seconds
            asked = int(due and processes.is_first()), self.stop.signal_number
            save, number = vote(asked)
            if step < phase.total_steps and (save or number):
                if number:
                    self._leave(phase, checkpoints, step, placed, board, number)
                self._save(phase, checkpoints, step, placed, board, ends=False)
                saved_at = time.monotonic()
        final = self._save(phase, checkpoints, step, placed, board, ends=True)
        progress.close()
        return final

    def _leave(
        self,
        phase: Phase,
        checkpoints: Checkpoints,
        step: int,
        placed: Any,
        board: TensorBoard | None,
        number: int = 0,
    ) -> NoReturn:
        """Saves, and ends the run as the signal asks; 0: the one that came here."""
        self._save(phase, checkpoints, step, placed, board, ends=True)
        at = f'{phase.name} step {step} of {phase.total_steps}'
        raise Interrupted(
            number or self.stop.signal_number, f'stopped at {at} and saved'
        )

    def _progress(
        self,
        phase: Phase,
        step: int,
        history: History | None,
        board: TensorBoard | None,
    ) -> Progress:
        """Told by the first process alone; the others only look for NaN."""
        return Progress(
            phase.name,
            phase.total_steps,
            phase.images_at
            if isinstance(phase, UnevenPhase)
            else phase.images_per_step,
            planned_epsilon=self.plan.epsilon,
            epsilon_at=lambda at: spent_so_far(
                self.plan, {CLASSES: 1, **phase.charged(at)}
            ),
            writer=board,
            history=history,
            start_step=step,
            stream=None if processes.is_first() else io.StringIO(),
        )

    def _save(
        self,
        phase: Phase,
        checkpoints: Checkpoints,
        step: int,
        placed: Any,
        board: TensorBoard | None,
        ends: bool,
    ) -> Any:
        """Checkpoint and picture; `ends`: nothing further was seen by anybody, nor will be."""
        state = parallel.unreplicate(placed)
        self._check_same('replicas', parallel.alike(state))
        checkpoints.save(step, state)

        def note() -> None:
            assert board
            board.picture(phase.picture(state), step)
            if ends:
                board.close()
                Stops(Workdir(self.workdir)).end()

        processes.from_first(note)
        return state

    def _check_same(self, what: str, private: Any) -> None:
        """All processes call it at the same point; the network sees a tag alone."""
        tag = self.keys.tag(parallel.digest(private))
        processes.check_same(what, tag)

    def first_state(self, init: Callable[..., Any], purpose: str, *args: Any) -> Any:
        """What `init` makes of a public key of this purpose, and `args`; on the host."""
        key = public_key(self.keys.public(purpose, 0))
        return jax.device_get(jax.jit(init)(key, *args))

    def picture(self, params: Params, sampler: Sampler | None = None) -> Image.Image:
        """Samples with these parameters; by the same public coins at every step."""
        key = public_key(self.keys.public('picture', 0))
        return preview(self.config, params, key, sampler)

    def on_every_device(self, value: np.ndarray) -> np.ndarray:
        """A host array with a device axis in front, equal for all."""
        number = len(self.devices[parallel.mine(self.devices)])
        return np.broadcast_to(value, (number, *np.shape(value)))

    @property
    def unrolls(self) -> bool:
        """Whether windows are unrolled instead of scanned.

        XLA's CPU convolutions are 5-12 times slower inside a loop or a conditional;
        elsewhere a scan compiles faster.
        """
        return self.devices[0].platform == 'cpu'
