"""G-PATE, DataLens, PATE-GAN for the audit: a step's queries as one Gaussian release; coins.

The neighbours of a scene lack one record of one teacher, so the audit moves that teacher's
training, its gradients and its votes, by the method's own code. The height of the highest
bin is divided by the noise ratio: then all coordinates carry the same noise.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.audit import canaries
from dpaf_jax.audit.harness import Notes, blank_run, quiet, run_steps, small, thin
from dpaf_jax.audit.target import AuditTarget, Release, Scene, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.g_pate.datalens import DataLens
from dpaf_jax.methods.g_pate.pate_gan import PateGan
from dpaf_jax.methods.g_pate.phase import GPatePhase
from dpaf_jax.methods.g_pate.plan import noise_ratio
from dpaf_jax.methods.g_pate.student import GPate
from dpaf_jax.privacy.keys import RunKeys, public_key
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.parallel import Split
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.run import Run

MEMBERS, STATES = 4, 4
STEPS = 64  # that the trace runs
COINS = np.arange(4, dtype=np.uint32)  # of fakes and projections: the same for all
KINDS = {'g_pate': GPate, 'datalens': DataLens, 'pate_gan': PateGan}


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """One step's votes; `devices`: numbers of devices."""
    every = math.lcm(*devices)
    teachers = every * -(-min(config.g_pate.teachers, 16) // every)
    g_pate = dataclasses.replace(config.g_pate, teachers=teachers, batch_size=MEMBERS)
    config = dataclasses.replace(config, g_pate=g_pate)
    number = teachers * MEMBERS
    extremes = canaries.extremes(config.data, number)
    batch = canaries.batch(extremes, config.data, (teachers, MEMBERS))
    many = canaries.noise_images(config.data, teachers, seed=2)
    crowd = canaries.batch(many, config.data, (teachers, 1))
    gan = _gan(config, plan)
    start = jax.device_get(gan.init(jax.random.key(0)))
    states = [_wild(start, seed) for seed in range(STATES)]

    def at(plan: PrivacyPlan) -> Any:
        return {number: _releaser(_gan(config, plan), number) for number in devices}

    target = AuditTarget(
        mechanism=_step_of(gan.mechanism, gan.queries),
        release=at(plan),
        exact=at(quiet(plan)),
        scenes=[Scene(state, batch) for state in states],
        crowd=Scene(states[0], crowd),
        in_place=True,
    )
    return [target]


def _gan(config: Config, plan: PrivacyPlan) -> GPate:
    return KINDS[config.method](config, plan)


def _step_of(votes: Mechanism, queries: int) -> Mechanism:
    """All queries of a step as one: the same noise on each coordinate."""
    root = math.sqrt(queries)
    return dataclasses.replace(
        votes,
        steps=votes.steps // queries,
        l2_sensitivity=votes.l2_sensitivity * root,
        noise_multiplier=votes.noise_multiplier / root,
    )


def _wild(state: Any, seed: int) -> Any:
    """Other students, so other fakes; teachers of another scale: some agree, some not."""
    if not seed:
        return state
    rng = np.random.default_rng(seed)

    def other(leaf: np.ndarray) -> np.ndarray:
        return (leaf * 10 ** rng.uniform(-1, 1)).astype(leaf.dtype)

    params, opt_state = state.teachers.tree
    teachers = jax.tree.map(other, params), opt_state
    params = jax.tree.map(other, state.generator.params)
    generator = state.generator._replace(params=params)
    return state._replace(teachers=Split(teachers), generator=generator)


def _releaser(gan: GPate, number: int) -> Release:
    """Ballots of one step on `number` devices for many keys at once."""
    devices = jax.local_devices()[:number]
    ratio = noise_ratio(gan.config)

    def ballots(state: Any, batch: ClipBatch, keys: jax.Array) -> jax.Array:
        fakes = gan.fakes(state.generator.params, public_key(jnp.asarray(COINS)))
        _, votes = gan.query(state.teachers.tree, batch, fakes)

        def released(key: jax.Array) -> jax.Array:
            ballot = gan.release(votes, key)
            if isinstance(ballot, jax.Array):
                return ballot.ravel()
            if ballot.highest is None:
                return ballot.histogram.ravel()
            parts = ballot.histogram.ravel(), ballot.highest.ravel() / ratio
            return jnp.concatenate(parts)

        return jax.vmap(released)(keys)

    fn = parallel.pmapped(ballots, devices)

    def release(state: Any, batch: ClipBatch, keys: np.ndarray) -> np.ndarray:
        state, keys = parallel.replicate((state, keys), devices)
        dealt = ClipBatch(*(parallel.deal(x, number, 0, 0) for x in batch))
        made = parallel.unreplicate(fn(state, dealt, keys))
        return np.asarray(made, np.float64)

    return release


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of the first `STEPS` steps: noise keys; every record is in every turn."""
    g_pate = dataclasses.replace(config.g_pate, agreement=False)  # it writes files
    config = dataclasses.replace(config, g_pate=g_pate)
    run = blank_run(config, plan, keys)
    notes = Notes(plan)
    run_steps(_TracedPhase(run, _gan(config, plan), notes), STEPS)
    return notes.trace()


class _TracedPhase(GPatePhase):
    def __init__(self, run: Run, gan: GPate, notes: Notes):
        super().__init__(run, gan)
        self._notes, self._window_fn, self._step = notes, self._note, 0
        notes.phase(self)

    def _note(self, state: Any, _: Any, draws: Any, keys: Any, __: Any) -> Any:
        for t, key in enumerate(keys[0]):
            self._notes.key(self.name, key)
            index, absent = draws['indices'][0, t], draws['is_padding_example'][0, t]
            self._notes.draw(self.name, self._in_turn(index.shape), index, absent)
            teachers = np.broadcast_to(np.arange(len(index))[:, None], index.shape)
            self._notes.part(self.name, index[~absent], teachers[~absent])
            self._step += 1
        return state, {}

    def _in_turn(self, shape: tuple[int, ...]) -> np.ndarray:
        """Records whose turn it is by their index and the step alone."""
        teachers, size = shape
        index = self._run.data.index
        width = -(-len(index) // teachers)
        turn = (self._step * size + np.arange(size)) % width
        return np.flatnonzero(np.isin(index // teachers, turn))


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, or rows, with small networks and a few steps."""
    g_pate, others = config.g_pate, dict[str, Any]()
    if config.method == 'datalens':
        few = min(config.datalens.top_k, 20)  # of 8 x 8 places
        others['datalens'] = dataclasses.replace(config.datalens, top_k=few)
    return small(
        config,
        **others,
        networks=thin(config),
        g_pate=dataclasses.replace(
            g_pate,
            teachers=num_examples // 4,
            batch_size=4,
            width=8,
            fc_width=4,
            steps=10,
            fakes=10,
            cell=1,
            agreement=False,
            projections=min(g_pate.projections, 4),
        ),
    )
