"""Windows end at the last step of the plan, wherever a run goes on."""

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from g_pate_cases import gan_of
from tiny_phases import MODES, gan_phase

from dpaf_jax import methods
from dpaf_jax.methods.dpaf.phase1.classifier_phase import LabellerPhase
from dpaf_jax.methods.dpaf.phase1.labeller import Labeller
from dpaf_jax.methods.g_pate.phase import GPatePhase
from dpaf_jax.runtime import parallel
from dpaf_jax.training.phase import window_steps
from dpaf_jax.training.run import Run

LABELLED = {
    **tiny.ONE_SHOT,
    'dpaf__classifier__private': 'labeller',
    'dpaf__taps': 'wavelet',
}


@pytest.mark.parametrize('length', [1, 2, 8, 10])
def test_from_any_step_each_step_is_made_once(length):
    total = 5 * length
    for start in range(total):
        made, step = [], start
        while step < total:
            steps = window_steps(step, length)
            made, step = [*made, *steps], steps.stop
        assert made == [*range(start, total)]


def labeller_phase(folder):
    config = tiny.config(**LABELLED, privacy__epsilon=math.inf)
    run = tiny.run(folder, config)
    run.plan = methods.get('dpaf').plan(config, len(run.data.labels))
    return run, LabellerPhase(run, Labeller(config, run.plan)), 'labeller'


def g_pate_phase(folder):
    gan = gan_of(g_pate__steps=20)
    run = tiny.run(folder, gan.config)
    return run, GPatePhase(run, gan), 'votes'


@pytest.mark.parametrize('make', [labeller_phase, g_pate_phase])
def test_a_run_that_moves_to_longer_windows_takes_no_key_beyond_its_plan(
    make, monkeypatch, tmp_path
):
    monkeypatch.setattr(Run, 'unrolls', property(lambda self: False))
    run, phase, mechanism = make(tmp_path)
    assert phase._length > 3 and phase.total_steps % phase._length == 0
    phase.__dict__['_feed'] = SimpleNamespace(deal=lambda draws: draws, data=None)
    phase._compiled = phase._window_fn = lambda state, *_: (state, {})
    noise, taken = run.keys.noise, []

    def note(purpose, step):
        taken.append((purpose, step))
        return noise(purpose, step)

    monkeypatch.setattr(type(run.keys), 'noise', lambda self, *which: note(*which))
    step = 3  # where windows of one step have left it
    while step < phase.total_steps:
        _, step, _ = phase.window(None, step)
    assert step == phase.total_steps
    assert taken == [(mechanism, t) for t in range(3, phase.total_steps)]


def test_a_one_shot_run_that_moves_misses_no_release(monkeypatch):
    monkeypatch.setattr(Run, 'unrolls', property(lambda self: False))
    fields = {**MODES['one shot'], 'dpaf__generator_steps': 10, 'dpaf__epochs': 2.0}
    _, _, phase, _ = gan_phase(1, **fields)
    assert (phase._length, phase.total_steps) == (10, 20)
    released = []
    phase._release = lambda state, release: released.append(release)
    phase._measured = lambda state, step: (state, None)
    phase._window_fn = lambda state, *_: (state, {})
    step = 3
    while step < phase.total_steps:
        _, step, _ = phase.window(None, step)
    assert (step, released) == (20, [1])


class Overrun:
    """A phase whose window ends behind the last step."""

    name, total_steps, images = 'overrun', 4, 1.0

    def init(self):
        return {}

    def charged(self, step):
        return {}

    def picture(self, state):
        return None

    def window(self, state, step):
        return state, step + 3, {}


class Silent(Overrun):
    """A phase whose windows tell nothing and take a while on the device."""

    name, total_steps = 'silent', 8

    def __init__(self, devices):
        self.marks, self.waiting = [], []
        self._step = parallel.pmapped(self._compute, devices, donate=(0,))

    def init(self):
        return {'x': np.zeros(100_000, np.float32), 'steps': np.zeros((), np.int32)}

    def _compute(self, state):
        x = jax.lax.fori_loop(0, 300, lambda _, x: jnp.sin(x + 1), state['x'])
        return {'x': x, 'steps': state['steps'] + 1}, jnp.sum(x)

    def window(self, state, step):
        state, mark = self._step(state)
        self.marks.append(mark)
        self.waiting.append(sum(not mark.is_ready() for mark in self.marks))
        return state, step + 1, {}


def test_the_host_is_one_window_ahead_even_of_one_that_tells_nothing(tmp_path):
    (tmp_path / 'private').mkdir()
    run = tiny.run(tmp_path, tiny.config())
    phase = Silent(run.devices)
    assert run.train(phase)['steps'] == 8
    # The last one, the one before it, and one more that has just ended.
    assert max(phase.waiting) <= 3


def test_a_window_behind_the_last_step_ends_the_run_and_is_not_kept(tmp_path):
    (tmp_path / 'private').mkdir()
    run = tiny.run(tmp_path, tiny.config())
    with pytest.raises(
        RuntimeError, match='overrun: a window has ended at step 6 of 4'
    ):
        run.train(Overrun())
    assert not list((tmp_path / 'checkpoints' / 'overrun').glob('*'))
