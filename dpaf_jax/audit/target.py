"""What an audit needs to know of a method: its mechanisms, runnable, and its coins.

A method provides, in a module that `session.AUDITS` names,

    audit_targets(config, plan, numbers_of_devices) -> list[AuditTarget]
    trace(config, plan, keys) -> Trace
    shrink(config, num_examples) -> Config

Everything that they return calls the method's own code: an audit that repeats it in its
own words would audit those.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpaf_jax.config import Config
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan
from dpaf_jax.training.input_pipeline import gather, records

# (state, units, noise keys [R, 8] uint32) -> [R, F] float64
Release = Callable[[Any, Any, np.ndarray], np.ndarray]


class Scene(NamedTuple):
    """A public state and a draw; leaving one record out of it gives a neighbour.

    Attributes:
        state: chosen by the adversary: a guarantee holds for every one.
        batch: with a field `is_padding_example` [U, M] bool; what is padding is absent.
    """

    state: Any
    batch: Any

    @property
    def places(self) -> list[tuple[int, ...]]:
        """Where records are."""
        return [tuple(p) for p in np.argwhere(~self.batch.is_padding_example)]

    def only(self, is_there: np.ndarray) -> 'Scene':
        """The same with all records absent but some of those that are there."""
        absent = self.batch.is_padding_example | ~is_there
        return self._replace(batch=self.batch._replace(is_padding_example=absent))

    def without(self, place: tuple[int, ...]) -> 'Scene':
        """The neighbour that lacks the record at `place`: its slot is empty."""
        is_there = np.ones_like(self.batch.is_padding_example)
        is_there[place] = False
        return self.only(is_there)

    def removed(self, place: tuple[int, ...], *, slots_stay: bool = False) -> 'Scene':
        """The same neighbour as data arrays make it: they lack the record.

        Its followers have other rows, in which they are found as training finds them, by
        the package's `gather`. They have other slots, too: those of single records move
        up, or of its group.

        Args:
            place: of the record.
            slots_stay: pairs the two draws as the proof does (sampling.py): the others
                lie where they lay. For states so wild that a slot shows in a float's last
                bits, and these in everything.
        """
        there = ~self.batch.is_padding_example
        row = np.cumsum(there).reshape(there.shape) - 1  # in the arrays with the record
        gone, left = row[place], there.copy()
        left[place] = False
        fields = 'images', 'labels', 'index'
        arrays = {
            name: np.delete(getattr(self.batch, name)[there], gone, axis=0)
            for name in fields
        }
        axis = int(there.shape[1] > 1)
        order = np.argsort(~left & (not slots_stay), axis=axis, kind='stable')
        blank = np.take_along_axis(~left, order, axis)
        rows = np.take_along_axis(row - (row > gone), order, axis)
        draw = {'indices': np.where(blank, 0, rows), 'is_padding_example': blank}
        data: Any = SimpleNamespace(**arrays)
        return self._replace(batch=gather(records(data), draw))

    def alone(self, place: tuple[int, ...]) -> 'Scene':
        """Nobody but the record at `place`."""
        is_there = np.zeros_like(self.batch.is_padding_example)
        is_there[place] = True
        return self.only(is_there)

    def empty(self) -> 'Scene':
        """Nobody was drawn."""
        return self.only(np.zeros_like(self.batch.is_padding_example))


@dataclasses.dataclass(frozen=True)
class AuditTarget:
    """One mechanism of a plan.

    Attributes:
        mechanism: the plan's.
        release: by the number of devices, the mechanism's own step on a draw dealt to
            them, as everybody sees its result: whole, in the units of the sum (times the
            public divisor, if the step divides).
        exact: the same with the noise, and nothing else, left out.
        scenes: draws of extreme records at extreme states, for the sensitivity.
        crowd: a draw of many different records, each a unit of its own.
        in_place: whether a unit belongs to its place in the state (a teacher): then it is
            never moved to another.
    """

    mechanism: Mechanism
    release: Mapping[int, Release]
    exact: Mapping[int, Release]
    scenes: Sequence[Scene]
    crowd: Scene
    in_place: bool = False


Seen = tuple[np.ndarray, np.ndarray]  # records, and the part of each


class Draws(NamedTuple):
    """Records drawn in the successive steps of a mechanism.

    Attributes:
        sampling_prob: claimed.
        eligible: by step, the indices of the records whose turn it was.
        chosen: by step, those that were drawn.
        groups: by step, the group of each of `chosen`.
        num_groups: claimed; 1 for none.
    """

    sampling_prob: float
    eligible: list[np.ndarray]
    chosen: list[np.ndarray]
    groups: list[np.ndarray]
    num_groups: int


@dataclasses.dataclass(frozen=True)
class Trace:
    """The coins of a run, as its phases hand them to the devices.

    Attributes:
        draws: by mechanism.
        keys: by purpose ('conv1', 'dpagg', 'fake', ...) the noise keys in order.
        steps_per_draw: by a pair of mechanisms that work in the same window, how many
            draws of the first pass for one of the second.
        noise: by purpose, noise keys [R, 8] to the noise that the method's code makes of
            them, [R, F], in units of its standard deviation.
        charged: by mechanism, the steps that a whole run makes by its phases' own count.
        parts: of mechanisms whose proof needs records in disjoint parts, step by step the
            records seen and the part (teacher, critic) that sees each.
        whole: the mechanisms of which every step was traced.
    """

    draws: dict[str, Draws]
    keys: dict[str, np.ndarray]
    steps_per_draw: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    noise: dict[str, Callable[[np.ndarray], np.ndarray]] = dataclasses.field(
        default_factory=dict
    )
    charged: dict[str, int] = dataclasses.field(default_factory=dict)
    parts: dict[str, list[Seen]] = dataclasses.field(default_factory=dict)
    whole: Collection[str] = ()


class MethodAudit(Protocol):
    """A method's module."""

    def audit_targets(
        self, config: Config, plan: PrivacyPlan, devices: Sequence[int]
    ) -> list[AuditTarget]:
        """All mechanisms of the plan."""

    def trace(self, config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
        """The coins of a run of this plan."""

    def shrink(self, config: Config, num_examples: int) -> Config:
        """A config of the same kind that trains in seconds on so many examples."""
