"""GS-WGAN for the audit: a critic's turn, and whose records and keys each turn has."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.audit.harness import Notes, Step, blank_run, make_target
from dpaf_jax.audit.methods import adversarial
from dpaf_jax.audit.methods.adversarial import wild_networks
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.gs_wgan.phase import GsWganPhase
from dpaf_jax.methods.gs_wgan.plan import GRADIENT
from dpaf_jax.methods.gs_wgan.turn import GsWgan
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run

STATES = 4


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """A turn; `devices`: numbers of devices."""
    shapes = jax.eval_shape(GsWgan(config, plan, 1).init, jax.random.key(0))
    states = [wild_networks(shapes, ['critics', 'generator'], i) for i in range(STATES)]
    states = [_without_moments(state, shapes) for state in states]

    def step_of(plan: PrivacyPlan, number: int) -> Step:
        return _step(GsWgan(config, plan, number))

    return [make_target(GRADIENT, states, config, plan, devices, step_of)]


def _without_moments(state: Any, shapes: Any) -> Any:
    """Wild critics, but Adam's state as at the start: a variance below 0 is no state."""
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes.critics.opt_state)
    return state._replace(critics=state.critics._replace(opt_state=zeros))


def _step(method: GsWgan) -> Step:
    def step(state: Any, batch: ClipBatch, key: jax.Array) -> jax.Array:
        public = jnp.zeros(4, jnp.uint32)
        batches = jax.tree.map(lambda leaf: leaf[None], batch)
        _, noisy = method.turn(state, batches, key, public, jnp.zeros(1, jnp.int32))
        return noisy

    return step


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of three turns of every critic; all of its own records are in each."""
    run = blank_run(config, plan, keys)
    notes = Notes(plan)
    method = GsWgan(config, plan, 1)
    phase = _TracedPhase(run, method, notes)
    for step in range(3 * method.critics):
        phase.window(None, step)
    return notes.trace()


class _TracedPhase(GsWganPhase):
    def __init__(self, run: Run, method: GsWgan, notes: Notes):
        super().__init__(run, method)
        self._notes, self._turn_fn = notes, self._note
        notes.phase(self)

    def _records(self, k: int) -> Draw:
        draw = super()._records(k)
        own = np.flatnonzero(self._owner == k)
        self._notes.part(GRADIENT, own, k)
        self._notes.draw(GRADIENT, own, draw.indices, draw.is_padding_example)
        return draw

    def _note(self, state: Any, _: Any, __: Any, keys: Any, *___: Any) -> Any:
        self._notes.key(GRADIENT, keys[0])
        return state, {}


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with thin networks and a few steps."""
    made = adversarial.shrink(config, num_examples)
    critics = -(-num_examples // made.gs_wgan.batch_size)
    per_turn = min(made.gs_wgan.critics_per_turn, critics)
    fewer = dataclasses.replace(made.gs_wgan, cell=1, critics_per_turn=per_turn)
    return dataclasses.replace(made, gs_wgan=fewer)
