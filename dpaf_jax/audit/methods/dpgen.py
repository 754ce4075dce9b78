"""DPGEN and DPDM for the audit: their mechanism and coins, as their own code runs them.

A release goes through `ScoreMatching.shots`, `query` and `update`, with momentum as the
optimiser: its first trace is the gradient itself. The coins come from the phase's own
window, whose compiled part is replaced by one that takes notes.
"""

import dataclasses
from collections.abc import Sequence
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
    run_steps,
    small,
    wild_state,
)
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.dpgen import dpdm
from dpaf_jax.methods.dpgen.phase import ScorePhase
from dpaf_jax.methods.dpgen.score_matching import ScoreMatching, make_score_matching
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run

STATES = 8
STEPS = 64  # that the trace runs
COINS = np.arange(4, dtype=np.uint32)  # of levels and noises: any, but the same for all


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """The one target; `devices`: numbers of devices."""
    dpgen = dataclasses.replace(
        config.dpgen, optimizer='momentum', schedule='constant', learning_rate=1.0
    )
    config = dataclasses.replace(config, dpgen=dpgen)
    init = _matching(config, plan).init
    shapes = jax.eval_shape(init, jax.random.key(0))
    states = [wild_state(shapes, ['params'], seed) for seed in range(STATES)]

    def step_of(plan: PrivacyPlan, _: int) -> Step:
        return _step(_matching(config, plan))

    return [make_target('score', states, config, plan, devices, step_of)]


def _matching(config: Config, plan: PrivacyPlan) -> ScoreMatching:
    make = dpdm.make_matching if config.method == 'dpdm' else make_score_matching
    return make(config, plan)


def _step(matching: ScoreMatching) -> Step:
    def step(state: Any, batch: ClipBatch, key: jax.Array) -> jax.Array:
        sums = matching.query(state.params, matching.shots(batch, jnp.asarray(COINS)))
        stepped, _ = matching.update(state, sums, key)
        released = first_moment(stepped.opt_state)
        return released * matching.mechanism.expected_batch_size

    return step


# --- coins ------------------------------------------------------------------------------


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of the first `STEPS` steps."""
    run = blank_run(config, plan, keys)
    notes = Notes(plan)
    run_steps(_TracedPhase(run, _matching(config, plan), notes), STEPS)
    return notes.trace()


class _TracedPhase(ScorePhase):
    def __init__(self, run: Run, matching: ScoreMatching, notes: Notes):
        super().__init__(run, matching)
        self._notes, self._compiled = notes, self._note
        notes.phase(self)

    def _note(self, state: Any, _: Any, draw: Any, rng: Any, key: np.ndarray) -> Any:
        index, padding = draw['indices'][0], draw['is_padding_example'][0]
        flat = (-1, index.shape[-1])
        self._notes.draw('score', None, index.reshape(flat), padding.reshape(flat))
        self._notes.key('score', key[0])
        return state, {}


# --- whole trainings ----------------------------------------------------------------------


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with a thin network and a few steps."""
    dpgen = config.dpgen
    return small(
        config,
        dpgen=dataclasses.replace(
            dpgen,
            width=4,
            max_width=4,
            scales=2,
            patch=2,
            num_levels=min(dpgen.num_levels, 6),
            batch_size=min(dpgen.batch_size, num_examples // 4),
            multiplicity=2,
            steps=16,
            candidates=2,
            warm_start='',  # it reads no private image
        ),
    )
