"""A method's own steps, made ready for an audit: what the methods' audit modules share."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from dpaf_jax.audit import canaries
from dpaf_jax.audit.target import AuditTarget, Draws, Release, Scene, Seen, Trace
from dpaf_jax.config import Config
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.privacy.sampling import Draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training.batch import ClipBatch
from dpaf_jax.training.phase import Phase
from dpaf_jax.training.run import Run
from dpaf_jax.training.sampled_phase import SampledPhase

UNITS, CROWD = 8, 96  # records of a scene, and of a draw of many

SILENT = 2.0**-24  # a noise multiplier

# (state, one device's units, noise key [8] uint32) -> what everybody sees of the release
Step = Callable[[Any, ClipBatch, jax.Array], jax.Array]


def quiet(plan: PrivacyPlan) -> PrivacyPlan:
    """The same plan with noise so small that it rounds to nothing.

    With none at all the code would take the way of runs without privacy.
    """
    silent = [dataclasses.replace(m, noise_multiplier=SILENT) for m in plan]
    return dataclasses.replace(plan, mechanisms=tuple(silent))


def blank_run(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Run:
    """A run on N records without content, classes in turn, whose coins are traced.

    Phases draw and take keys in it as in any other; it has no folder, so none may write.
    """
    n, k = plan.num_examples, config.data.num_classes
    blank = np.zeros((n, 1, 1, 1), np.uint8)
    data = canaries.dataset(config, blank, np.arange(n, dtype=np.int32) % k)
    nowhere = pathlib.Path('/nonexistent')
    return Run(nowhere, config, plan, data, keys, jax.local_devices()[:1])


def wild_state(shapes: Any, wild: Sequence[str], seed: int) -> Any:
    """A state of normal values in some fields and zeros in all others.

    Seed 0 has the scale of initial weights. Others scale every leaf by a factor of its
    own, up to 30 either way: somewhere gradients are steep and no output saturates.

    Args:
        shapes: a NamedTuple of trees with shape and dtype.
        wild: its fields that are drawn.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)

    def normal(leaf: Any) -> np.ndarray:
        scale = 10 ** rng.uniform(-1.5, 1.5) if seed else 0.3
        return (scale * rng.normal(size=leaf.shape)).astype(np.float32)

    made = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    drawn = {name: jax.tree.map(normal, getattr(shapes, name)) for name in wild}
    return made._replace(**drawn)


def first_moment(opt_state: Any, name: str = 'trace') -> jax.Array:
    """What an optimiser has kept of its one gradient, as one vector.

    Args:
        opt_state: after one step from zero.
        name: 'trace' of momentum: the gradient; 'mu' of Adam: 1 - beta1 of it.
    """
    return ravel_pytree(optax.tree_utils.tree_get(opt_state, name))[0]


def small(config: Config, **sections: Any) -> Config:
    """The same run on 8 x 8 images, with other sections by name."""
    data = dataclasses.replace(config.data, image_size=8)
    return dataclasses.replace(config, data=data, **sections)


def thin(config: Config, **widths: Any) -> Any:
    """The config's networks with two layers and few maps; `widths`: further fields."""
    return dataclasses.replace(
        config.networks, layers='C1-C1-x', generator_width=4, z_dim=8, **widths
    )


def releaser(step: Step, number: int) -> Release:
    """Runs a step on `number` devices for many keys at once."""
    devices = jax.local_devices()[:number]
    fn = parallel.pmapped(jax.vmap(step, in_axes=(None, None, 0)), devices)

    def release(state: Any, batch: ClipBatch, keys: np.ndarray) -> np.ndarray:
        fills = ClipBatch(images=0, labels=0, is_padding_example=True, index=0)
        dealt = [
            parallel.deal(x, number, 0, f) for x, f in zip(batch, fills, strict=True)
        ]
        same = parallel.replicate((state, keys), devices)
        released = parallel.unreplicate(fn(same[0], ClipBatch(*dealt), same[1]))
        return released.reshape(len(keys), -1).astype(np.float64)

    return release


def make_target(
    name: str,
    states: Sequence[Any],
    config: Config,
    plan: PrivacyPlan,
    devices: Sequence[int],
    step_of: Callable[[PrivacyPlan, int], Step],
) -> AuditTarget:
    """A mechanism whose units are singletons, by the one step that releases it.

    Args:
        name: of the mechanism.
        states: one for each scene; a draw of many meets the first.
        config: of the audit.
        plan: of the config.
        devices: numbers of devices.
        step_of: the step of a plan on so many devices.
    """

    def at(plan: PrivacyPlan) -> dict[int, Release]:
        return {d: releaser(step_of(plan, d), d) for d in devices}

    data = config.data
    batch = canaries.batch(canaries.extremes(data, UNITS), data, (UNITS, 1))
    many = canaries.noise_images(data, CROWD, seed=2)
    return AuditTarget(
        mechanism=plan[name],
        release=at(plan),
        exact=at(quiet(plan)),
        scenes=[
            *(Scene(state, batch) for state in states),
            Scene(states[0], canaries.nearly_alike(data, UNITS)),
        ],
        crowd=Scene(states[0], canaries.batch(many, data, (CROWD, 1))),
    )


def run_steps(phase: Phase, most: int, state: Any = None) -> None:
    """Goes through a traced phase's windows to its end, or until `most` steps are done."""
    step = 0
    while step < min(phase.total_steps, most):
        _, step, _ = phase.window(state, step)


class Notes:
    """What went to the devices."""

    def __init__(self, plan: PrivacyPlan):
        self._plan = plan
        self.draws: dict[str, Draws] = {}
        self.keys: dict[str, list[np.ndarray]] = {}
        self.charged: dict[str, int] = {}
        self.parts: dict[str, list[Seen]] = {}
        self._absent: list[np.ndarray] = []

    def trace(self, **more: Any) -> Trace:
        """All of it; `more`: fields of a `Trace` that are not noted here."""
        keys = {name: np.array(noted) for name, noted in self.keys.items()}
        return Trace(self.draws, keys, charged=self.charged, parts=self.parts, **more)

    def phase(self, phase: Phase) -> None:
        """What a whole run of it charges: asked as soon as it is made.

        A later phase repeats what the plan says of those before it; they know better.
        """
        for name, steps in phase.charged(phase.total_steps).items():
            self.charged[name] = max(steps, self.charged.get(name, 0))

    def part(self, name: str, records: np.ndarray, parts: np.ndarray | int) -> None:
        """One step's records, and the part that sees each."""
        seen = records, np.broadcast_to(parts, records.shape)
        self.parts.setdefault(name, []).append(seen)

    def key(self, purpose: str, *keys: np.ndarray) -> None:
        self.keys.setdefault(purpose, []).extend(np.asarray(k) for k in keys)

    def draw(self, name: str, eligible: Any, index: Any, absent: Any) -> None:
        """One step's [U, M] indices and padding."""
        m = self._plan[name]
        empty = Draws(m.sampling_prob, [], [], [], m.num_groups)
        noted = self.draws.setdefault(name, empty)
        everyone = np.arange(self._plan.num_examples)
        noted.eligible.append(everyone if eligible is None else eligible)
        noted.chosen.append(index[~absent])
        group = np.broadcast_to(np.arange(len(index))[:, None], index.shape)
        noted.groups.append(group[~absent])

    def chunk(self, batch: ClipBatch) -> None:
        """Who is there among the next records, in a pass over all: a device's [1, U, 1]."""
        self._absent.append(np.asarray(batch.is_padding_example[0]))

    def all_records(self, name: str, eligible: Any = None) -> None:
        """One step on the chunks since the step before."""
        absent = np.concatenate(self._absent)
        self._absent.clear()
        self.draw(name, eligible, np.arange(len(absent))[:, None], absent)


class NotedPhase(SampledPhase):
    """A phase that computes nothing: it notes who is drawn, and which noise keys are used.

    Args:
        notes: of the run.
        args, unrolls: as the phase's.
    """

    def __init__(self, notes: Notes, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._notes, self._compiled = notes, self._note
        notes.phase(self)

    def _draw(self, step: int) -> Draw:
        draw = super()._draw(step)
        name = self._mechanism.name
        self._notes.draw(name, None, draw.indices, draw.is_padding_example)
        return draw

    def _note(self, state: Any, _: Any, __: Any, keys: Any, ___: Any) -> Any:
        self._notes.key(self._mechanism.name, *keys[0])
        return state, {}
