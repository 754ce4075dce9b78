"""Methods of one embedding for the audit: release and coins, as their own code runs them."""

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from dpaf_jax.audit.harness import (
    Notes,
    Step,
    blank_run,
    make_target,
    run_steps,
    small,
    thin,
)
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods import get
from dpaf_jax.methods.embedding.matching import Matching
from dpaf_jax.methods.embedding.phase import MatchPhase
from dpaf_jax.methods.embedding.plan import EMBEDDING
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run

STATES = 4


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """The embedding; `devices`: numbers of devices."""
    one = _matching(config, plan, 1)
    states = [wild_state(one, i) for i in range(STATES)]

    def step_of(plan: PrivacyPlan, number: int) -> Step:
        return _step(_matching(config, plan, number))

    return [make_target(EMBEDDING, states, config, plan, devices, step_of)]


def _matching(config: Config, plan: PrivacyPlan, number: int) -> Matching:
    method: Any = get(config.method)  # those of this kind have one
    made: Matching = method.matching(config, plan, number)
    return made


def wild_state(matching: Matching, seed: int) -> Any:
    """A state of drawn coins; frequencies of seed 1 and above up to 30 times as high."""
    rng = np.random.default_rng(seed)
    state = jax.device_get(matching.init(jax.random.key(seed)))

    def scaled(leaf: np.ndarray) -> np.ndarray:
        if not seed or not np.issubdtype(leaf.dtype, np.floating):
            return leaf
        return np.float32(10 ** rng.uniform(-1.5, 1.5)) * leaf

    return state._replace(coins=jax.tree.map(scaled, state.coins))


def _step(matching: Matching) -> Step:
    # Computed here once more: a divisor that depends on data must not cancel.
    prior = np.array(matching.config.data.prior, np.float32)
    divisor = matching.plan.num_examples * prior[:, None]

    def step(state: Any, batch: ClipBatch, key: jax.Array) -> jax.Array:
        sums = matching.query(state.coins, batch)
        return matching.release(state, sums, key).embedding * divisor

    return step


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of a run: who is in the one sum, and the one noise key."""
    run = blank_run(config, plan, keys)
    notes = Notes(plan)
    phase = _TracedPhase(run, _matching(config, plan, 1), notes)
    embedding = np.zeros((1, 1, 1), np.float32)
    state = SimpleNamespace(embedding=embedding, coins=None)
    run_steps(phase, phase.total_steps, state)
    return notes.trace(whole={EMBEDDING})


class _TracedPhase(MatchPhase):
    def __init__(self, run: Run, matching: Matching, notes: Notes):
        super().__init__(run, matching)
        self._notes = notes
        notes.phase(self)
        self._accumulate, self._release_fn = self._note_chunk, self._note_release
        self._window_fn = lambda state, keys: (state, {})

    def _note_chunk(self, sums: Any, _: Any, batch: ClipBatch) -> Any:
        self._notes.chunk(batch)
        return sums

    def _note_release(self, state: Any, _: Any, key: np.ndarray) -> Any:
        self._notes.key(EMBEDDING, key[0])
        self._notes.all_records(EMBEDDING)
        return state


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with a thin generator and a few steps."""
    less = {'features': 64, 'sum_order': 2, 'products': 4}
    settings = getattr(config, config.method)
    known = {field.name for field in dataclasses.fields(settings)}
    fewer = dataclasses.replace(
        settings,
        generator_steps=20,
        batch_size=max(20, 2 * config.data.num_classes),
        **{name: value for name, value in less.items() if name in known},
    )
    return small(config, networks=thin(config, width=4), **{config.method: fewer})
