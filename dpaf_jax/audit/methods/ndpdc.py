"""NDPDC for the audit: one aggregate, and the coins of the phase that makes them."""

import dataclasses
from collections.abc import Sequence
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
)
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.embedding.ndpdc.aggregate import AggregatePhase
from dpaf_jax.methods.embedding.ndpdc.condensation import AGGREGATE, Coins, Condensation
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run

STATES = 4
STEPS = 60  # of a run that are traced, at most


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """An aggregate; `devices`: numbers of devices."""
    method = Condensation(config, plan)
    states = [wild_coins(method, seed) for seed in range(STATES)]

    def step_of(plan: PrivacyPlan, _: int) -> Step:
        return _step(Condensation(config, plan))

    return [make_target(AGGREGATE, states, config, plan, devices, step_of)]


def wild_coins(method: Condensation, seed: int) -> Coins:
    """Of a step; from seed 1 on every kernel is up to 30 times as large, or as small."""
    rng = np.random.default_rng(seed)
    drawn: Coins = jax.device_get(jax.jit(method.coins)(np.full(4, seed, np.uint32)))

    def scaled(leaf: np.ndarray) -> np.ndarray:
        return np.float32(10 ** rng.uniform(-1.5, 1.5)) * leaf if seed else leaf

    return drawn._replace(weights=jax.tree.map(scaled, drawn.weights))


def _step(method: Condensation) -> Step:
    # Computed here once more: a divisor that depends on data must not cancel.
    prior = np.array(method.config.data.prior, np.float32)
    divisor = method.settings.batch_size * prior[:, None]

    def step(coins: Coins, batch: ClipBatch, key: jax.Array) -> jax.Array:
        return method.release(method.query(coins, batch), key) * divisor

    return step


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of the first steps."""
    run = blank_run(config, plan, keys)
    notes = Notes(plan)
    run_steps(_TracedPhase(run, Condensation(config, plan), notes), STEPS)
    return notes.trace()


class _TracedPhase(AggregatePhase):
    def __init__(self, run: Run, method: Condensation, notes: Notes):
        super().__init__(run, method)
        self._notes, self._release_fn = notes, self._note
        notes.phase(self)
        self._coins = lambda seed: None
        self._accumulate = lambda sums, coins, data, draw: None

    def _draw(self, step: int) -> Draw:
        draw = super()._draw(step)
        self._notes.draw(AGGREGATE, None, draw.indices, draw.is_padding_example)
        return draw

    def _note(self, state: Any, _: Any, __: Any, ___: Any, key: np.ndarray) -> Any:
        self._notes.key(AGGREGATE, key[0])
        return state


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with thin networks and a few steps."""
    fewer = dataclasses.replace(
        config.ndpdc,
        aggregates=20,
        batch_size=num_examples // 4,
        width=4,
        depth=2,
        images_per_class=4,
        parts=1,
        steps=40,
    )
    return small(config, ndpdc=fewer)
