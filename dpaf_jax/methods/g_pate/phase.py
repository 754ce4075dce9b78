"""Training of teachers and student: whose records and which keys each step has."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from dpaf_jax.methods.g_pate.agreement import Agreement
from dpaf_jax.methods.g_pate.plan import noise_ratio
from dpaf_jax.methods.g_pate.student import EXACT, GPate, GPateState
from dpaf_jax.methods.g_pate.teachers import Parts, Teachers
from dpaf_jax.runtime import parallel, processes
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.input_pipeline import Feed, device_memory, gather
from dpaf_jax.training.phase import Metrics, repeat, window_length, window_steps
from dpaf_jax.training.run import Run

MEMORY_SHARE = 0.8  # of a device's memory, that the teachers may take


def train(run: Run) -> Any:
    """Trains teachers and student; returns the average of the student's parameters."""
    return train_student(run, GPate(run.config, run.plan))


def train_student(run: Run, gan: GPate) -> Any:
    """Trains teachers and student of one of the ways in which votes leave."""
    _check_devices(gan.teachers, run)
    return run.train(GPatePhase(run, gan)).generator.ema_params


def _check_devices(teachers: Teachers, run: Run) -> None:
    """States the memory that the teachers take; UserError where they do not fit."""
    if processes.count() > 1:
        raise UserError(
            '--cluster',
            f'has {processes.count()} processes, but the teachers of g_pate live in one',
            'Start one process; it uses all devices of its machine',
        )
    number, devices = run.config.g_pate.teachers, len(run.devices)
    where = 'config.g_pate.teachers'
    if number % devices:
        problem = f'is {number}, for {devices} devices'
        raise UserError(where, problem, 'Use a multiple')
    needed = teachers.num_bytes() / devices / 2**30
    there = device_memory(run.devices) / 2**30
    text = f'{number} teachers take {needed:.2f} GiB on each of {devices} device(s)'
    print(f'{text}, of {there:.1f} GiB')
    if needed > MEMORY_SHARE * there:
        problem = f'is {number}: {text}, which has {there:.1f} GiB'
        raise UserError(where, problem, 'Lower it, or g_pate.width, or batch_size')


class GPatePhase:
    """Algorithm 1, a window of steps at a time.

    One where windows would be unrolled, or where every step's votes are looked at.
    """

    def __init__(self, run: Run, gan: GPate):
        self._run, self._gan, self.name = run, gan, gan.name
        g_pate = run.config.g_pate
        self.total_steps = g_pate.steps
        self.images = float(g_pate.fakes)
        single = run.unrolls or g_pate.agreement
        self._length = window_length(g_pate.steps, single)
        self._agreement = self._of_the_teachers() if g_pate.agreement else None
        records = run.data.manifest.num_examples
        self._parts = Parts.of(run.data.index, records, g_pate.teachers)
        self._window_fn = parallel.pmapped(self._window, run.devices, donate=(0,))
        self._feed = Feed(run)

    def init(self) -> GPateState:
        return self._run.first_state(self._gan.init, 'init g_pate')

    def charged(self, step: int) -> Mapping[str, int]:
        return {self.name: step * self._gan.queries}

    def picture(self, state: GPateState) -> Image.Image:
        return self._run.picture(state.generator.ema_params)

    def window(self, state: Any, step: int) -> tuple[Any, int, Metrics]:
        run, steps = self._run, window_steps(step, self._length)
        size = run.config.g_pate.batch_size
        draws = self._feed.deal([self._parts.batch(t, size) for t in steps])
        noise = np.stack([run.keys.noise(self.name, t) for t in steps])
        public = np.stack([run.keys.public('step', t) for t in steps])
        keys = run.on_every_device(noise), run.on_every_device(public)
        state, metrics = self._window_fn(state, self._feed.data, draws, *keys)
        if self._agreement:
            votes, passed = (np.asarray(metrics.pop(name)[0]) for name in EXACT)
            self._agreement.note(step, votes, passed > 0)
        return state, steps[-1] + 1, metrics

    def _of_the_teachers(self) -> Agreement:
        gan, plan = self._gan, self._run.plan
        ratio, sigma2 = noise_ratio(gan.config), gan.mechanism.noise_std
        check = (gan.threshold, ratio * sigma2) if ratio < math.inf else None
        delta = plan.delta - plan.overflow_delta
        return Agreement(self._run.workdir, self.name, sigma2, check, delta)

    def _window(
        self, state: Any, data: Any, draws: Any, noise_keys: Any, public_keys: Any
    ) -> tuple[Any, Metrics]:
        def body(state: GPateState, xs: Any) -> tuple[GPateState, Metrics]:
            draw, noise_key, key = xs
            return self._gan.step(state, gather(data, draw), noise_key, key)

        return repeat(self._run.unrolls, body, state, (draws, noise_keys, public_keys))
