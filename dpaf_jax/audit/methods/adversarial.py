"""Adversarial methods for the audit: their discriminator's steps and coins, as they run.

A step's release is read off Adam: its first moment after one step from zero is half of the
gradient. An optimiser is post-processing, so what it hides protects nothing.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.audit.harness import (
    Notes,
    Step,
    blank_run,
    first_moment,
    make_target,
    small,
    thin,
    wild_state,
)
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.adversarial.networks import AdversarialState
from dpaf_jax.methods.adversarial.phase import AdversarialPhase, Method
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run

STATES = 8
WINDOWS, SOME = 24, 4  # the trace runs so many; each mechanism has so many steps in it
BETA1 = 0.5  # of Adam
Make = Callable[[Config, PrivacyPlan, int], Method]  # the last: devices


def audit_targets(
    make: Make, config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """The discriminator's step, by each mechanism of the plan.

    Args:
        make: the method's static part.
        config: of the audit.
        plan: of the config.
        devices: numbers of devices.
    """
    states = wild_states(make(config, plan, 1), STATES)

    def target(name: str) -> AuditTarget:
        def step_of(plan: PrivacyPlan, number: int) -> Step:
            return _step(make(config, plan, number), plan[name])

        return make_target(name, states, config, plan, devices, step_of)

    return [target(mechanism.name) for mechanism in plan]


def wild_states(method: Method, number: int) -> list[AdversarialState]:
    """States of any parameters, spread over the run's steps: networks may grow."""
    adversaries = method.adversaries
    shapes = jax.eval_shape(adversaries.init, jax.random.key(0))
    wild = ['discriminator', 'generator']
    states: list[AdversarialState] = []
    for i in range(number):
        state = wild_networks(shapes, wild, i)
        step = adversaries.settings.generator_steps * (number - i) // number - 1
        generator = state.generator
        steps = np.full_like(generator.steps, max(step, 0))
        states.append(state._replace(generator=generator._replace(steps=steps)))
    return states


def wild_networks(shapes: Any, wild: Sequence[str], seed: int) -> Any:
    """`wild_state`, where of the generator only the parameters are drawn."""
    bare = shapes._replace(generator=shapes.generator.params)
    state = wild_state(bare, wild, seed)
    begun = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes.generator)
    return state._replace(generator=begun._replace(params=state.generator))


def _step(method: Method, mechanism: Mechanism) -> Step:
    def step(state: Any, batch: ClipBatch, key: jax.Array) -> jax.Array:
        public, std = jnp.zeros(4, jnp.uint32), jnp.float32(mechanism.noise_std)
        stepped, _ = method.discriminator_step(state, batch, key, public, std)
        moment = first_moment(stepped.discriminator_opt_state, 'mu')
        return moment / (1 - BETA1) * mechanism.expected_batch_size

    return step


def trace(make: Make, config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of `WINDOWS` windows, or of more until every mechanism had some steps.

    Of a shorter run all there are.
    """
    run = blank_run(config, plan, keys)
    notes = Notes(plan)
    phase = _TracedPhase(run, make(config, plan, 1), notes)
    step, least = 0, WINDOWS * getattr(config, config.method).discriminator_steps
    while step < phase.total_steps:
        if step >= least and _all_have(notes, plan, SOME):
            break
        _, step, _ = phase.window(None, step)
    return notes.trace()


def _all_have(notes: Notes, plan: PrivacyPlan, steps: int) -> bool:
    wanted = {m.name: min(steps, m.steps) for m in plan}
    return all(len(notes.keys.get(name, ())) >= n for name, n in wanted.items())


class _TracedPhase(AdversarialPhase):
    def __init__(self, run: Run, method: Method, notes: Notes):
        super().__init__(run, method)
        self._notes = notes
        notes.phase(self)
        self._discriminator_fn = lambda state, *_: (state, {})
        self._generator_fn = lambda state, _: (state, {})

    def _coins(self, steps: range) -> tuple[Any, ...]:
        rng = super()._coins(steps)
        draws, noise_keys, *_ = rng
        for i, t in enumerate(steps):
            name = self._method.mechanism_at(t).name
            self._notes.key(name, noise_keys[0, i])
            padding = draws['is_padding_example'][0, i]
            there = self._method.eligible(self._run.data.labels, t)
            self._notes.draw(name, there, draws['indices'][0, i], padding)
        return rng


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with thin networks and a few steps."""
    settings = dataclasses.replace(
        getattr(config, config.method),
        batch_size=num_examples // 4,
        discriminator_steps=2,
        generator_steps=10,
        width=4,
        fc_width=8,
        generator_batch_size=20,
    )
    return small(config, networks=thin(config), **{config.method: settings})
