"""DPGEN for the audit: its mechanism and its coins, as its own code runs them.

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
import optax

from dpaf_jax import parallel
from dpaf_jax.auditing import canaries
from dpaf_jax.auditing.target import AuditTarget, Draws, Release, Scene, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.dpgen import ScorePhase
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.run import Run
from dpaf_jax.score_matching import ScoreMatching, make_score_matching
from dpaf_jax.units import Units

UNITS, CROWD, STATES = 8, 96, 8
STEPS = 64  # that the trace runs
SILENT = 2.0**-24  # a noise multiplier
COINS = np.arange(4, dtype=np.uint32)  # of levels and noises: any, but the same for all


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """The one target; `devices`: numbers of devices."""
    dpgen = dataclasses.replace(
        config.dpgen, optimizer='momentum', schedule='constant', learning_rate=1.0
    )
    config = dataclasses.replace(config, dpgen=dpgen)
    images = canaries.extremes(config.data, UNITS)
    units = canaries.units(images, config.data, (UNITS, 1))
    matching = make_score_matching(config, plan)
    states = [_state(matching, seed) for seed in range(STATES)]
    many = canaries.noise_images(config.data, CROWD, seed=2)
    target = AuditTarget(
        mechanism=plan['score'],
        release={d: _release(config, plan, d) for d in devices},
        exact={d: _release(config, _quiet(plan), d) for d in devices},
        scenes=[Scene(state, units) for state in states],
        crowd=Scene(states[0], canaries.units(many, config.data, (CROWD, 1))),
    )
    return [target]


def _quiet(plan: PrivacyPlan) -> PrivacyPlan:
    """The same plan with noise so small that it rounds to nothing."""
    quiet = [dataclasses.replace(m, noise_multiplier=SILENT) for m in plan.mechanisms]
    return dataclasses.replace(plan, mechanisms=tuple(quiet))


def _state(matching: ScoreMatching, seed: int) -> Any:
    """Normal parameters; beyond seed 0 every leaf has a scale of its own."""
    coins = np.random.default_rng(seed)

    def normal(leaf: Any) -> np.ndarray:
        scale = 10 ** coins.uniform(-1.5, 1.5) if seed else 0.3
        return (scale * coins.normal(size=leaf.shape)).astype(np.float32)

    shapes = jax.eval_shape(matching.init, jax.random.key(0))
    made = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return made._replace(params=jax.tree.map(normal, shapes.params))


def _release(config: Config, plan: PrivacyPlan, number: int) -> Release:
    matching, m = make_score_matching(config, plan), plan['score']
    devices = jax.local_devices()[:number]

    def step(state: Any, units: Units, keys: jax.Array) -> jax.Array:
        sums = matching.query(state.params, matching.shots(units, jnp.asarray(COINS)))

        def released(key: jax.Array) -> jax.Array:
            stepped, _ = matching.update(state, sums, key)
            trace: jax.Array = optax.tree_utils.tree_get(stepped.optimizer, 'trace')
            return trace * m.expected_batch_size

        return jax.vmap(released)(keys)

    fn = parallel.pmapped(step, devices)

    def release(state: Any, units: Units, keys: np.ndarray) -> np.ndarray:
        fills = (0, 0, True)
        dealt = [
            parallel.deal(x, number, 0, f) for x, f in zip(units, fills, strict=True)
        ]
        same = parallel.replicate((state, keys), devices)
        made = parallel.unreplicate(fn(same[0], Units(*dealt), same[1]))
        return made.reshape(len(keys), -1).astype(np.float64)

    return release


# --- coins ------------------------------------------------------------------------------


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of the first `STEPS` steps."""
    n, k = plan.num_examples, config.data.num_classes
    blank = np.zeros((n, 1, 1, 1), np.uint8)
    data = canaries.dataset(config, blank, np.arange(n, dtype=np.int32) % k)
    nowhere: Any = None  # the phase's windows write no file
    run = Run(nowhere, config, plan, data, keys, jax.local_devices()[:1])
    phase = _Traced(run, make_score_matching(config, plan), plan['score'])
    for step in range(min(STEPS, phase.total_steps)):
        phase.window(None, step)
    noted = {'score': np.array(phase.noted)}
    return Trace(n, {'score': phase.draws}, {}, noted, {})


class _Traced(ScorePhase):
    def __init__(self, run: Run, matching: ScoreMatching, m: Mechanism):
        super().__init__(run, matching)
        self._compiled = self._note
        self._everyone = np.arange(len(run.data.labels))
        self.draws = Draws(m.sampling_prob, [], [], [], 1)
        self.noted: list[np.ndarray] = []

    def _note(self, state: Any, _: Any, draw: Any, coins: Any, key: np.ndarray) -> Any:
        chosen = draw['indices'][~draw['is_padding_example']]
        self.draws.eligible.append(self._everyone)
        self.draws.chosen.append(chosen)
        self.draws.groups.append(np.zeros_like(chosen))
        self.noted.append(key[0])
        return state, {}


# --- whole trainings ----------------------------------------------------------------------


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with a thin network and a few steps."""
    dpgen = config.dpgen
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, image_size=8),
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
        ),
    )
