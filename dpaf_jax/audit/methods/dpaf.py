"""DPAF for the audit: its mechanisms and its coins, as its own code runs them.

Releases go through `Classifier.step` or `Labeller.step`, `conv2_step`, and `Aggregator.query`
with `Gan.privatised`. The optimisers of the two gradients are set to 'momentum', whose first
trace is the gradient itself: an optimiser is post-processing, so what it hides protects
nothing. The coins come from the phases' own windows, whose compiled part is replaced by one
that takes notes.
"""

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.audit import canaries
from dpaf_jax.audit.harness import (
    CROWD,
    UNITS,
    Notes,
    Step,
    blank_run,
    first_moment,
    quiet,
    releaser,
    small,
    thin,
    wild_state,
)
from dpaf_jax.audit.target import AuditTarget, Release, Scene, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.phase1.classifier import Classifier
from dpaf_jax.methods.dpaf.phase1.classifier_phase import ClassifierPhase, LabellerPhase
from dpaf_jax.methods.dpaf.phase1.labeller import Labeller
from dpaf_jax.methods.dpaf.phase2.batch_phase import BatchPhase
from dpaf_jax.methods.dpaf.phase2.conv2_update import conv2_step
from dpaf_jax.methods.dpaf.phase2.gan import Gan, StepKeys, Use
from dpaf_jax.methods.dpaf.phase2.one_shot_phase import OneShotPhase
from dpaf_jax.methods.dpaf.train import window
from dpaf_jax.privacy.chacha import KEY_WORDS
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.release.samplers.dpaf import LABELLER
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.input_pipeline import Feed
from dpaf_jax.training.run import Run

MEMBERS = 2
STATES, GROUP_STATES = 8, 16  # more for groups: some turn a group's gradient round
WINDOWS = 24  # that the trace runs

NO_KEY = np.zeros(KEY_WORDS, np.uint32)


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """A target for each mechanism of the plan; `devices`: numbers of devices."""
    readable = _readable(config)
    return [_target(readable, plan, mechanism, devices) for mechanism in plan]


def _readable(config: Config) -> Config:
    dpaf = config.dpaf
    dpaf = dataclasses.replace(
        dpaf,
        classifier=dataclasses.replace(dpaf.classifier, optimizer='momentum'),
        conv2=dataclasses.replace(dpaf.conv2, optimizer='momentum'),
    )
    return dataclasses.replace(config, dpaf=dpaf)


def _target(
    config: Config, plan: PrivacyPlan, mechanism: Mechanism, devices: Sequence[int]
) -> AuditTarget:
    name, grouped = mechanism.name, mechanism.num_groups > 1
    part = _part(config, plan, name, 1)
    members = MEMBERS if grouped else 1
    extremes = canaries.extremes(config.data, UNITS * members)
    batch = canaries.batch(extremes, config.data, (UNITS, members))
    if grouped:
        # Groups of one, of two alike, and of two that differ: joining doubles some.
        batch.images[1::2, 1] = batch.images[1::2, 0]
        batch.is_padding_example[0, 1:] = True
    states = [_state(part, i) for i in range(GROUP_STATES if grouped else STATES)]
    many = canaries.noise_images(config.data, CROWD, seed=2)
    crowd = Scene(states[0], canaries.batch(many, config.data, (CROWD, 1)))
    return AuditTarget(
        mechanism=mechanism,
        release={d: _release(config, plan, name, d) for d in devices},
        exact={d: _release(config, quiet(plan), name, d) for d in devices},
        scenes=[Scene(state, batch) for state in states],
        crowd=crowd,
    )


def _part(config: Config, plan: PrivacyPlan, name: str, number: int) -> Any:
    """The static object whose step the mechanism is."""
    gan = Gan(config, plan, number)
    if name == LABELLER:
        return Labeller(config, plan)
    if name == 'conv1' and name not in gan.updates:
        return Classifier(make_networks(config), config, plan)
    return gan


def _state(part: Any, seed: int) -> Any:
    """Normal parameters and aggregates; everything else as it begins."""
    more = (None,) if isinstance(part, Gan) else ()
    shapes = jax.eval_shape(lambda key: part.init(key, *more), jax.random.key(0))
    wild = ('params', 'latest') if more else ('params',)
    return wild_state(shapes, wild, seed)


def _release(config: Config, plan: PrivacyPlan, name: str, number: int) -> Release:
    part, mechanism = _part(config, plan, name, number), plan[name]
    if not isinstance(part, Gan):
        return releaser(_phase1_step(part, mechanism), number)
    make = _dpagg_step if name == 'dpagg' else _conv2_step
    return releaser(make(part, mechanism), number)


def _phase1_step(classifier: Classifier | Labeller, m: Mechanism) -> Step:
    def step(state: Any, batch: ClipBatch, key: jax.Array) -> jax.Array:
        stepped, _ = classifier.step(state, batch, key)
        return m.expected_units * first_moment(stepped.opt_state)

    return step


def _conv2_step(gan: Gan, m: Mechanism) -> Step:
    def step(state: Any, batch: ClipBatch, key: jax.Array) -> jax.Array:
        public = np.zeros(4, np.uint32)
        keys = StepKeys(None, NO_KEY, {m.name: key}, public)
        stepped = conv2_step(gan, state, batch, keys, m.name)
        return m.expected_units * first_moment(stepped.opt_states[m.name])

    return step


def _dpagg_step(gan: Gan, m: Mechanism) -> Step:
    shares = gan.config.data.prior if gan.schedule.class_pure else (1.0,)
    # Computed here once more: a divisor that depends on data must not cancel.
    divisor = m.sampling_prob * gan.plan.num_examples * np.array(shares, np.float32)

    def step(state: Any, batch: ClipBatch, key: jax.Array) -> jax.Array:
        sums = gan.aggregator.query(state.params, batch)
        everyone = jnp.ones(gan.schedule.num_aggregates, bool)
        return gan.privatised(state, sums, everyone, key).latest * divisor[:, None]

    return step


# --- coins ------------------------------------------------------------------------------


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of `WINDOWS` windows of each phase."""
    run = blank_run(config, plan, keys)
    notes = Notes(plan)
    gan = Gan(config, plan, 1)
    for name in ('conv1', LABELLER):
        if name in plan and name not in gan.updates:
            phase = _TracedLabeller if name == LABELLER else _TracedClassifier
            phase(run, _part(config, plan, name, 1), notes).go()
    traced = _TracedOneShot if plan['dpagg'].sampling_prob == 1 else _TracedBatches
    traced(run, gan, notes).go()
    noise = {}
    if gan.schedule.trains_head:
        noise['fake'] = _fake_noise(config, plan)
    else:
        notes.keys.pop('fake', None)
    steps = {('dpagg', name): config.dpaf.asymmetry for name in gan.updates}
    return notes.trace(steps_per_draw=steps, noise=noise)


class _TracedClassifier(ClassifierPhase):
    def __init__(self, run: Run, classifier: Classifier | Labeller, notes: Notes):
        super().__init__(run, classifier)
        self._notes, self._compiled = notes, self._note
        notes.phase(self)

    def go(self) -> None:
        step = 0
        for _ in range(WINDOWS):
            _, step, _ = self.window(None, step)

    def _note(self, state: Any, _: Any, draws: Any, keys: np.ndarray) -> Any:
        for t, key in enumerate(keys[0]):
            self._notes.key(self._mechanism.name, key)
            padding = draws['is_padding_example'][0, t]
            self._notes.draw(
                self._mechanism.name, None, draws['indices'][0, t], padding
            )
        return state, {}


class _TracedLabeller(_TracedClassifier, LabellerPhase):
    """Whose features nobody computes: the records are blank."""

    def _make_feed(self, state: Any) -> Feed:
        return Feed(self._run)


class _TracedBatches(BatchPhase):
    def __init__(self, run: Run, gan: Gan, notes: Notes):
        super().__init__(run, gan, None, window)
        self._notes, self._compiled = notes, lambda _: self._note
        notes.phase(self)

    def go(self) -> None:
        for number in range(WINDOWS):
            self._first = number * self._mu
            self.window(None, self._first)

    def _note(self, state: Any, _: Any, draw: Any, xs: Any, others: Any) -> Any:
        keys, own = xs['keys'], draw['segment_ids'][0]
        for t in range(self._mu):
            self._notes.key('dpagg', keys.real_noise[0, t])
            self._notes.key('fake', keys.fake_noise[0, t])
            eligible = self._eligible[(self._first + t) % self._gan.schedule.turns]
            padding = draw['is_padding_example'][0] | (own != t)[:, None]
            self._notes.draw('dpagg', eligible, draw['indices'][0], padding)
        for name, other in others.items():
            self._notes.key(name, keys.update_noise[name][0, -1])
            padding = other['is_padding_example'][0]
            self._notes.draw(name, None, other['indices'][0], padding)
        return state, {}


class _TracedOneShot(OneShotPhase):
    def __init__(self, run: Run, gan: Gan, notes: Notes):
        super().__init__(run, gan, None)
        self._notes = notes
        self._accumulate, self._release_fn = self._note_chunk, self._note_release
        notes.phase(self)

    def go(self) -> None:
        table = np.zeros(
            (1, self._gan.schedule.num_aggregates, self._gan.taps.size), np.float32
        )
        state = SimpleNamespace(latest=table, params=None)
        for release in range(2 * self._gan.schedule.turns):
            self._release(state, release)
            eligible = self._eligible[release % self._gan.schedule.turns]
            self._notes.all_records('dpagg', eligible)
        for step in range(WINDOWS):
            self._notes.key('fake', self._tick_keys(step).fake_noise)
        mu = self._run.config.dpaf.asymmetry
        for update in range(WINDOWS if self._gan.updates else 0):
            keys = self._keys((update + 1) * mu - 1).update_noise
            for name, draw in self._update_draws(update).items():
                padding = draw['is_padding_example'][0]
                self._notes.draw(name, None, draw['indices'][0], padding)
                self._notes.key(name, keys[name])

    def _note_chunk(self, sums: Any, _: Any, batch: ClipBatch) -> Any:
        self._notes.chunk(batch)
        return sums

    def _note_release(self, state: Any, _: Any, active: Any, key: np.ndarray) -> Any:
        self._notes.key('dpagg', key[0])
        return state


def _fake_noise(
    config: Config, plan: PrivacyPlan
) -> Callable[[np.ndarray], np.ndarray]:
    """The noise on fake aggregates, in units of its standard deviation."""
    shares = config.data.prior if config.dpaf.batches == 'class_pure' else (1.0,)
    m = plan['dpagg']
    divisor = m.sampling_prob * plan.num_examples * np.array(shares)[:, None]

    def tables(plan: PrivacyPlan) -> Callable[[np.ndarray], np.ndarray]:
        gan = _part(config, plan, 'dpagg', 1)
        state = _state(gan, 0)

        def made(key: jax.Array) -> jax.Array:
            keys = StepKeys(None, key, {}, np.zeros(4, np.uint32))
            return gan.fake_aggregates(state, state.generator.params, keys, Use.HEAD)

        fn = parallel.pmapped(jax.vmap(made), jax.local_devices()[:1])
        return lambda keys: np.asarray(fn(keys[None])[0], np.float64)

    noisy, exact = tables(plan), tables(quiet(plan))
    std = m.noise_multiplier * m.l2_sensitivity

    def noise(keys: np.ndarray) -> np.ndarray:
        only = (noisy(keys) - exact(keys[:1])) * divisor / std
        return only.reshape(len(keys), -1)

    return noise


# --- whole trainings ----------------------------------------------------------------------


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with thin networks and a few steps."""
    dpaf, k = config.dpaf, config.data.num_classes
    aggregates = k if dpaf.batches == 'class_pure' else 1
    quarter = num_examples // 4
    size = min(dpaf.batch_size, quarter // aggregates or 1)
    epochs = 16 * size * aggregates / num_examples  # 16 DPAGG steps of all classes
    return small(
        config,
        networks=thin(config, width=4, fc_width=8),
        dpaf=dataclasses.replace(
            dpaf,
            batch_size=size,
            epochs=epochs if size else dpaf.epochs,
            # Compiling takes most of the time: short windows, one pattern.
            asymmetry=min(dpaf.asymmetry, 2),
            n_critic=1,
            generator_steps=1 if size else 25,
            warm_start='',  # it reads no private image
            classifier=dataclasses.replace(
                dpaf.classifier, batch_size=quarter, epochs=2.0
            ),
            conv2=dataclasses.replace(dpaf.conv2, batch_size=quarter),
            generator=dataclasses.replace(
                dpaf.generator, batch_size=max(20, 2 * aggregates)
            ),
        ),
    )
