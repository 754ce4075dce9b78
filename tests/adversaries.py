"""What the tests of the adversarial methods share: neighbours, and whole phases."""

import dataclasses
import functools
import math
import tempfile

import jax
import numpy as np
import pytest
import tiny

from dpaf_jax.audit import canaries
from dpaf_jax.audit.methods.adversarial import wild_states
from dpaf_jax.audit.target import Scene
from dpaf_jax.methods.adversarial.phase import AdversarialPhase
from dpaf_jax.runtime import parallel
from dpaf_jax.training.run import Run


def states_of(method, number=4):
    """Parameters up to 30 times as large as at the start, at steps of the whole run."""
    return wild_states(method, number)


def some_units(method, number=8):
    images = canaries.extremes(method.config.data, number)
    return canaries.batch(images, method.config.data, (number, 1))


def deal(batch, number):
    return type(batch)(*(np.stack(np.split(x, number)) for x in batch))


@functools.cache
def _query(method, number):
    def query(state, batch):
        own = method.adversaries.own(state)
        return method.query(own, batch, np.arange(4, dtype=np.uint32))

    return tiny.over_devices(query, number)


def summed(method, number, state, batch):
    """The sum over devices as one float64 vector, exact where it lies on a grid."""
    return of_placed(method, number, placed(state, number), batch)


def placed(state, number):
    return parallel.replicate(state, jax.local_devices()[:number])


def of_placed(method, number, state, batch):
    """`summed` of a state that the devices have already."""
    made = _query(method, number)(state, deal(batch, number))
    return tiny.vector(parallel.unreplicate(made))


def moves(method, number):
    """How far leaving out one record moves the sum, by state and record."""
    batch, far = some_units(method), []
    for state in states_of(method):
        there = placed(state, number)
        whole = of_placed(method, number, there, batch)
        scene = Scene(state, batch)
        for place in scene.places:
            for other in (scene.without(place), scene.removed(place)):
                rest = of_placed(method, number, there, other.batch)
                far.append(np.linalg.norm(whole - rest))
    return np.array(far)


def unclipped(method):
    """The same without a clip: the planted fault."""
    loose = [
        dataclasses.replace(m, l2_sensitivity=math.inf) for m in method.plan.mechanisms
    ]
    plan = dataclasses.replace(method.plan, mechanisms=tuple(loose))
    return dataclasses.replace(method, plan=plan)


def noise_of_a_step(method, number, step=0):
    """What a step on an empty draw releases, over its mechanism's standard deviation.

    The optimiser must be plain descent at rate 1.
    """
    devices, batch = jax.local_devices()[:number], some_units(method)
    batch.is_padding_example[:] = True
    state = jax.device_get(jax.jit(method.adversaries.init)(jax.random.key(0)))
    m = method.mechanism_at(step)
    keys = tiny.keys().noise(m.name, step), tiny.keys().public('step', step)
    placed, *rng = parallel.replicate((state, *keys, np.float32(m.noise_std)), devices)
    step_fn = parallel.pmapped(method.discriminator_step, devices)
    after, _ = step_fn(placed, deal(batch, number), *rng)
    moved = tiny.vector(parallel.unreplicate(after).discriminator)
    noise = m.expected_batch_size * (moved - tiny.vector(state.discriminator))
    return noise / m.noise_std


def trained(method_of, config, unrolls=True):
    """(start, end, metrics) of a whole phase."""
    run = tiny.run(tempfile.gettempdir(), config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, 'unrolls', property(lambda self: unrolls))
        method = method_of(config, run.plan, 1)
        phase = AdversarialPhase(run, method)
        start = phase.init()
        state, step = parallel.replicate(start, run.devices), 0
        while step < phase.total_steps:
            state, step, metrics = phase.window(state, step)
            assert sum(phase.charged(step).values()) == step
        charged = phase.charged(phase.total_steps)
        assert charged == {m.name: m.steps for m in run.plan.mechanisms}
        return start, parallel.unreplicate(state), metrics
