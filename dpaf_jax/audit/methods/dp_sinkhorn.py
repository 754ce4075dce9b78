"""DP-Sinkhorn for the audit: a step's release, and who is drawn with which noise key."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.audit.harness import (
    NotedPhase,
    Notes,
    Step,
    blank_run,
    make_target,
    run_steps,
    small,
    thin,
    wild_state,
)
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.dp_sinkhorn import GRADIENT, DpSinkhorn
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.batch import ClipBatch

STATES = 4
STEPS = 60  # of a run that are traced, at most


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """A step; `devices`: numbers of devices."""
    shapes = jax.eval_shape(DpSinkhorn(config, plan).init, jax.random.key(0))
    states = [wild_state(shapes, ['params'], i) for i in range(STATES)]

    def step_of(plan: PrivacyPlan, _: int) -> Step:
        return _step(DpSinkhorn(config, plan))

    return [make_target(GRADIENT, states, config, plan, devices, step_of)]


def _step(method: DpSinkhorn) -> Step:
    def step(state: Any, batch: ClipBatch, key: jax.Array) -> jax.Array:
        noisy, _, _ = method.release(state, batch, key, jnp.zeros(4, jnp.uint32))
        return noisy

    return step


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of the first steps."""
    run = blank_run(config, plan, keys)
    notes = Notes(plan)
    phase = NotedPhase(notes, run, DpSinkhorn(config, plan), unrolls=False)
    run_steps(phase, STEPS)
    return notes.trace()


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with a thin generator and a few steps."""
    settings = dataclasses.replace(
        config.dp_sinkhorn, batch_size=num_examples // 4, generator_steps=20, cell=1
    )
    return small(config, networks=thin(config, width=4), dp_sinkhorn=settings)
