"""One run: its folder, its keys, its devices, and the loop that every phase shares."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.data import Dataset
from dpaf_jax.privacy.keys import RunKeys, public_key
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release.samplers.protocol import Params, Sampler
from dpaf_jax.release.samplers.registry import preview
from dpaf_jax.runtime import parallel, processes
from dpaf_jax.training.checkpoint import NOTHING, Checkpoints, Inherited
from dpaf_jax.training.phase import Phase
from dpaf_jax.training.session import Session
from dpaf_jax.training.signals import StopRequest, WindowLeft


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
            RuntimeError: the phase would make more steps than the plan charges.
        """
        self._check_charged(phase)
        checkpoints = Checkpoints(
            self.workdir / 'checkpoints' / phase.name,
            self.config.run.keep_checkpoints,
            self.keys.fingerprint,
            self.inherited,
        )
        with self.stop.deferred(), contextlib.closing(checkpoints):
            start = phase.init()
            state, step = checkpoints.restore(start) or (start, 0)
            self.check_same('states', [np.int64(step), state])
            if step < phase.total_steps:
                state = self._train(phase, checkpoints, state, step)
        self.stop.check(phase.name)
        return state

    def _train(
        self, phase: Phase, checkpoints: Checkpoints, state: Any, step: int
    ) -> Any:
        with Session(self, phase, checkpoints, step) as session:
            session.resumed(state, step)
            placed = parallel.replicate(state, self.devices)
            vote, ahead = parallel.Vote(self.devices), None
            while step < phase.total_steps:
                # The first one compiles, and may pass over all records: both take long.
                try:
                    placed, step, metrics = phase.window(placed, step)
                except WindowLeft:
                    session.leave(step, placed)
                if step > phase.total_steps:
                    # Its noise is charged nowhere, so nothing may see its state.
                    end = f'step {step} of {phase.total_steps}'
                    raise RuntimeError(f'{phase.name}: a window has ended at {end}')
                # One window ahead of the device, not more: a stop is noticed soon. Where a
                # window tells nothing, the least of its state says when it has ended.
                jax.block_until_ready(ahead)
                told = parallel.first(metrics)
                ahead = told or parallel.first(_least(placed))
                session.told(step, told)
                asked = int(session.is_save_due and processes.is_first())
                save, number = vote((asked, self.stop.signal_number))
                if step < phase.total_steps and number:
                    session.leave(step, placed, number)
                if step < phase.total_steps and save:
                    session.save(step, placed)
            return session.save(step, placed, ends=True)

    def _check_charged(self, phase: Phase) -> None:
        """A whole phase makes no step that the plan does not charge."""
        for name, steps in phase.charged(phase.total_steps).items():
            charged = self.plan[name].steps if name in self.plan else 0
            if steps > charged:
                told = f'{steps} steps of {name}, where the plan charges {charged}'
                raise RuntimeError(f'{phase.name}: {told}')

    def check_same(self, what: str, private: Any) -> None:
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
    def repeats_bits(self) -> bool:
        """Whether a step that is computed again gives the same bits.

        Elsewhere kernels are chosen by timing them, and some add in no fixed order.
        """
        return self.devices[0].platform == 'cpu'

    @property
    def unrolls(self) -> bool:
        """Whether windows are unrolled instead of scanned.

        XLA's CPU convolutions are 5-12 times slower inside a loop or a conditional;
        elsewhere a scan compiles faster.
        """
        return self.devices[0].platform == 'cpu'


def _least(state: Any) -> Any:
    """Its smallest array, if it has any: to wait for."""
    return min(jax.tree.leaves(state), key=np.size, default=())
