"""P3GM for the audit: its three releases, and who is drawn with which noise key."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from dpaf_jax.audit.harness import (
    NotedPhase,
    Notes,
    Step,
    blank_run,
    make_target,
    run_steps,
    small,
    wild_state,
)
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.p3gm.decoder import DecoderState, PhasedVae
from dpaf_jax.methods.p3gm.moments import Encoder
from dpaf_jax.methods.p3gm.plan import DECODER, EM, PCA
from dpaf_jax.methods.p3gm.train import DecoderPhase, MomentsPhase
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.optimizers import TrainState
from dpaf_jax.training.run import Run

STATES = 4
STEPS = 60  # of phase 2 that are traced, at most
STEEP = 50.0  # directions so long that codes reach their bound


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """A target for each mechanism; `devices`: numbers of devices."""
    states = [_wild(config, plan, seed) for seed in range(STATES)]

    def target(name: str) -> AuditTarget:
        def step_of(plan: PrivacyPlan, _: int) -> Step:
            return _step(name, PhasedVae(config, plan))

        some = states[:1] if name == PCA else states  # none enters the first query
        return make_target(name, some, config, plan, devices, step_of)

    return [target(name) for name in (PCA, EM, DECODER)]


def _wild(config: Config, plan: PrivacyPlan, seed: int) -> Any:
    """Any directions, any Gaussians, any weights."""
    vae = PhasedVae(config, plan)
    shapes = jax.eval_shape(
        lambda key: vae.init(key, vae.encoder.init()), jax.random.key(0)
    )
    bare = shapes._replace(vae=shapes.vae.params)
    state = wild_state(bare, ['moments', 'vae'], seed)
    moments = state.moments._replace(basis=STEEP * state.moments.basis)
    # A release asks for no optimiser.
    return DecoderState(moments, TrainState.start(state.vae, optax.identity()))


def _step(name: str, vae: PhasedVae) -> Step:
    encoder = vae.encoder

    def step(state: Any, batch: ClipBatch, key: jax.Array) -> jax.Array:
        if name == DECODER:
            noisy = vae.release(state, batch, key, jnp.zeros(4, jnp.uint32))
            return ravel_pytree(noisy)[0]
        query = encoder.products if name == PCA else encoder.class_moments
        return encoder.noisy(name, query(state.moments, batch), key)

    return step


# --- coins ------------------------------------------------------------------------------


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of phase 1, and of phase 2's first steps."""
    run = blank_run(config, plan, keys)
    notes, vae = Notes(plan), PhasedVae(config, plan)
    first = _TracedMoments(run, vae.encoder, notes)
    state = jax.tree.map(lambda leaf: leaf[None], first.init())
    run_steps(first, first.total_steps, state)
    run_steps(_NotedDecoder(notes, run, vae, vae.encoder.init()), STEPS)
    return notes.trace(whole={PCA, EM})


class _TracedMoments(MomentsPhase):
    def __init__(self, run: Run, encoder: Encoder, notes: Notes):
        super().__init__(run, encoder)
        self._notes = notes
        notes.phase(self)

    def _add_fn(self, query: Any) -> Any:
        def note(sums: Any, _: Any, batch: ClipBatch) -> Any:
            self._notes.chunk(batch)
            return sums

        return note

    def _release_fn(self, name: str, then: Any) -> Any:
        def note(state: Any, _: Any, key: np.ndarray) -> Any:
            self._notes.key(name, key[0])
            self._notes.all_records(name)
            return state

        return note


class _NotedDecoder(NotedPhase, DecoderPhase):
    """Phase 2, noted."""


# --- whole trainings ----------------------------------------------------------------------


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with a thin decoder and a few steps."""
    fewer = dataclasses.replace(
        config.p3gm, dims=4, width=8, batch_size=num_examples // 4, steps=20
    )
    return small(config, p3gm=fewer)
