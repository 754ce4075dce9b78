"""DP-GAN for the audit: its discriminator's step and its coins, as its own code runs them.

A step's release is read off Adam: its first moment after one step from zero is half of the
gradient. An optimiser is post-processing, so what it hides protects nothing.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpaf_jax.auditing import canaries
from dpaf_jax.auditing.rehearsal import Notes, Step, quiet, releaser, wild_state
from dpaf_jax.auditing.target import AuditTarget, Scene, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.dp_gan import DISCRIMINATOR, DpGan, DpGanPhase
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.run import Run
from dpaf_jax.units import Units

UNITS, CROWD, STATES = 8, 96, 8
WINDOWS = 24  # that the trace runs
BETA1 = 0.5  # of Adam


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """The discriminator's step; `devices`: numbers of devices."""
    shapes = jax.eval_shape(DpGan(config, plan, 1).init, jax.random.key(0))
    wild = ['discriminator', 'generator']
    states = [wild_state(shapes, wild, i) for i in range(STATES)]
    extremes = canaries.extremes(config.data, UNITS)
    units = canaries.units(extremes, config.data, (UNITS, 1))
    many = canaries.noise_images(config.data, CROWD, seed=2)
    crowd = canaries.units(many, config.data, (CROWD, 1))

    def at(plan: PrivacyPlan) -> Any:
        return {d: releaser(_step(DpGan(config, plan, d)), d) for d in devices}

    target = AuditTarget(
        mechanism=plan[DISCRIMINATOR],
        release=at(plan),
        exact=at(quiet(plan)),
        scenes=[Scene(state, units) for state in states],
        crowd=Scene(states[0], crowd),
    )
    return [target]


def _step(gan: DpGan) -> Step:
    def step(state: Any, units: Units, key: jax.Array) -> jax.Array:
        public = jnp.zeros(4, jnp.uint32)
        stepped, _ = gan.discriminator_step(state, units, key, public)
        moment = optax.tree_utils.tree_get(stepped.discriminator_optimizer, 'mu')
        gradient: jax.Array = moment / (1 - BETA1)
        return gradient * gan.mechanism.expected_batch_size

    return step


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of `WINDOWS` windows."""
    n, k = plan.num_examples, config.data.num_classes
    blank = np.zeros((n, 1, 1, 1), np.uint8)
    data = canaries.dataset(config, blank, np.arange(n, dtype=np.int32) % k)
    nowhere: Any = None  # windows write no file
    run = Run(nowhere, config, plan, data, keys, jax.local_devices()[:1])
    notes = Notes(plan)
    _TracedPhase(run, DpGan(config, plan, 1), notes).go()
    key = {name: np.array(value) for name, value in notes.keys.items()}
    return Trace(n, notes.draws, {}, key, {})


class _TracedPhase(DpGanPhase):
    def __init__(self, run: Run, gan: DpGan, notes: Notes):
        super().__init__(run, gan)
        self._notes, self._discriminator_fn = notes, self._note
        self._generator_fn = lambda state, _: (state, {})

    def go(self) -> None:
        for window in range(WINDOWS):
            self.window(None, window * self._window_steps)

    def _note(self, state: Any, _: Any, draws: Any, keys: Any, __: Any) -> Any:
        for t, key in enumerate(keys[0]):
            self._notes.key(DISCRIMINATOR, key)
            padding = draws['is_padding_example'][0, t]
            self._notes.draw(DISCRIMINATOR, None, draws['indices'][0, t], padding)
        return state, {}


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with thin networks and a few steps."""
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, image_size=8),
        networks=dataclasses.replace(
            config.networks, layers='C1-C1-x', generator_width=4, z_dim=8
        ),
        dp_gan=dataclasses.replace(
            config.dp_gan,
            batch_size=num_examples // 4,
            discriminator_steps=2,
            generator_steps=10,
            width=4,
            fc_width=8,
            generator_batch_size=20,
        ),
    )
