"""The `PrivacyPlan`: what is released, how often, with how much noise, at which epsilon.

Built from public information alone, before any image is read. The sampler, the
clipper, the noise and the accountant read it; none of them takes loose numbers.
"""

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpaf_jax.config import PrivacyConfig
from dpaf_jax.privacy.grid import Grid

if TYPE_CHECKING:  # slow to import: samplers read plans and account for nothing
    import dp_accounting

FIXED_ENTROPY = 'none (fixed entropy)'

NEIGHBORS = (
    'zero-out: one image with its label against an empty record, N fixed and public '
    '(dp-accounting: REPLACE_SPECIAL)'
)
REPLACE_ONE = (
    'replace-one: one image with its label against any other, N fixed and public; holds '
    'for zero-out neighbours too'
)
ONE_RECORD, ONE_GROUP = (
    'one image with its label',
    'all images of one group, of which at most one takes part,',
)
CERTIFIED = 'certified'
ACCOUNTANT = 'PLD (dp-accounting, pessimistic, grid 1e-4)'
EVENTS = {  # of dp-accounting
    'gaussian': 'GaussianDpEvent',
    'laplace': 'LaplaceDpEvent',
}


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """One Gaussian mechanism on Poisson samples, repeated; or one Laplace mechanism.

    Attributes:
        name: what it trains or releases: 'conv1', 'conv2', 'dpagg', ...
        kind: the query whose output is noised, for people.
        sampling_prob: chance of one record to be in one draw, in (0, 1].
        l2_sensitivity: largest change of the pre-noise sum when one record is
            zeroed out, given that it was drawn.
        steps: draws in which one record may take part (for class-pure batches, the
            turns of one class: the worst case over classes).
        expected_batch_size: public mean of a draw's size; the only normaliser.
        capacity: slots of a padded draw, per unit group.
        num_groups: groups that a draw is dealt to; 1 where there are none.
        shared_by: so many draws of one record, at most, share the `capacity` slots.
        noise_multiplier: noise standard deviation over `l2_sensitivity`, of Laplace noise
            its scale over the sensitivity in l1, which then is as large; 0 for a run
            without privacy.
        law: of the noise: 'gaussian' or 'laplace'.

    Example:
        >>> groups = Mechanism(
        ...     name='conv1', kind='sum of clipped gradients, one per group',
        ...     sampling_prob=0.01, l2_sensitivity=2.0, steps=100,
        ...     expected_batch_size=600.0, capacity=800, noise_multiplier=1.5,
        ... )
        >>> groups.noise_std
        3.0
        >>> groups.event().count
        100
    """

    name: str
    kind: str
    sampling_prob: float
    l2_sensitivity: float
    steps: int
    expected_batch_size: float
    capacity: int
    num_groups: int = 1
    shared_by: int = 1
    noise_multiplier: float = 0.0
    law: str = 'gaussian'

    @classmethod
    def bounded_sum(
        cls,
        name: str,
        kind: str,
        privacy: PrivacyConfig,
        num_examples: int,
        *,
        batch_size: int,
        l2_sensitivity: float,
        steps: int = 1,
    ) -> 'Mechanism':
        """A sum over Poisson samples, whose noise is still open.

        Args:
            name, kind, steps: as the attributes.
            privacy: without noise nothing is clipped, so nothing bounds the sum either.
            num_examples: N, public.
            batch_size: of N, expected in a draw; N itself for all records.
            l2_sensitivity: what clipping bounds it by.
        """
        return cls(
            name=name,
            kind=kind,
            sampling_prob=batch_size / num_examples,
            l2_sensitivity=privacy.bound(l2_sensitivity),
            steps=steps,
            expected_batch_size=float(batch_size),
            capacity=batch_size,
        )

    @property
    def l2_clip_norm(self) -> float:
        """What a unit is clipped to.

        A record empties its unit, or takes its group from one content to another: then
        the sum moves by twice the bound.
        """
        return self.l2_sensitivity / 2 if self.num_groups > 1 else self.l2_sensitivity

    def bound(self, value: float) -> float:
        """`value`, a clip bound; infinite where nothing is clipped."""
        return value if math.isfinite(self.l2_sensitivity) else math.inf

    @property
    def expected_units(self) -> float:
        """How many clipped units are summed, public: what a noisy sum is divided by."""
        return self.num_groups if self.num_groups > 1 else self.expected_batch_size

    @property
    def expected_unit_size(self) -> float:
        """How many records a clipped unit is expected to have, public: 1, or a group's."""
        return (
            self.expected_batch_size / self.num_groups if self.num_groups > 1 else 1.0
        )

    @property
    def noise_std(self) -> float:
        """Standard deviation (Laplace: scale) of the noise on each coordinate of the sum."""
        return (
            self.noise_multiplier * self.l2_sensitivity
            if self.noise_multiplier
            else 0.0
        )

    @property
    def grid(self) -> Grid | None:
        """On which contributions are added exactly; None where there is no noise."""
        if not 0 < self.noise_std < math.inf:
            return None
        return Grid.of(self.l2_sensitivity, self.noise_std)

    def event(self) -> 'dp_accounting.DpEvent':
        """What this mechanism costs one record over the whole run."""
        import dp_accounting  # late

        if self.noise_multiplier == 0:
            return dp_accounting.NonPrivateDpEvent()
        if self.law not in EVENTS:
            raise ValueError(f'{self.name} has noise of the unknown law {self.law!r}')
        event = getattr(dp_accounting, EVENTS[self.law])
        once: dp_accounting.DpEvent = event(self.noise_multiplier)
        if self.sampling_prob < 1:
            once = dp_accounting.PoissonSampledDpEvent(self.sampling_prob, once)
        return dp_accounting.SelfComposedDpEvent(once, self.steps)


@dataclasses.dataclass(frozen=True, repr=False)
class PrivacyPlan:
    """All mechanisms of a run and what they cost together.

    Attributes:
        mechanisms: every way by which a private example reaches an output.
        guarantee: 'certified', or 'none (reason)'.
        epsilon: of the composition, by PLD, rounded up; None where nothing holds.
        epsilon_rdp: the same by Renyi DP.
        claimed_epsilon: `as_published` only: what the paper's theorem says.
        delta: the total, `overflow_delta` included.
        overflow_delta: chance that some draw exceeds its capacity.
        num_examples: N, public.
        neighbors: the relation that epsilon is for, in words.
        accountant: how epsilon was computed, in words.

    Example:
        What DP-MERF costs on 1469 digits at epsilon = 1; no image is looked at.

        >>> from dpaf_jax import methods
        >>> from dpaf_jax.config import defaults, from_config_dict
        >>> config = defaults()
        >>> config.method, config.privacy.epsilon = 'dp_merf', 1.0
        >>> plan = methods.plan(from_config_dict(config), 1469)
        >>> plan.guarantee, plan.epsilon, plan['embedding'].noise_multiplier
        ('certified', 0.9999, 3.731)
        >>> PrivacyPlan.from_json(plan.to_json()) == plan
        True
    """

    mechanisms: tuple[Mechanism, ...]
    guarantee: str
    epsilon: float | None
    epsilon_rdp: float | None
    claimed_epsilon: float | None
    delta: float
    overflow_delta: float
    num_examples: int
    neighbors: str = NEIGHBORS
    accountant: str = ACCOUNTANT

    def __repr__(self) -> str:
        return describe(self)

    def __getitem__(self, name: str) -> Mechanism:
        for mechanism in self.mechanisms:
            if mechanism.name == name:
                return mechanism
        raise KeyError(f'{name!r}: the plan has {[m.name for m in self]}')

    def __iter__(self) -> Iterator[Mechanism]:
        return iter(self.mechanisms)

    def __contains__(self, name: str) -> bool:
        return any(m.name == name for m in self)

    def without(self, name: str) -> 'PrivacyPlan':
        """The same plan but for one mechanism; what it states is that of all."""
        kept = tuple(m for m in self if m.name != name)
        return dataclasses.replace(self, mechanisms=kept)

    @property
    def dp_event(self) -> 'dp_accounting.DpEvent':
        """The whole composition for one record (worst class)."""
        import dp_accounting  # late

        if self.guarantee.startswith('none') and self.epsilon is None:
            return dp_accounting.NonPrivateDpEvent()
        return dp_accounting.ComposedDpEvent([m.event() for m in self.mechanisms])

    def to_json(self) -> dict[str, Any]:
        """The content of `plan.json` and `privacy.json`."""
        fields = dataclasses.asdict(self)
        fields['mechanisms'] = list(fields.pop('mechanisms'))  # people read them last
        if self.claimed_epsilon is None:
            del fields['claimed_epsilon']
        for mechanism in fields['mechanisms']:
            if not math.isfinite(mechanism['l2_sensitivity']):
                mechanism['l2_sensitivity'] = None
            if mechanism['shared_by'] == 1:  # as it was before slots could be shared
                del mechanism['shared_by']
        fields['dp_event'] = event_to_json(self.dp_event)
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> 'PrivacyPlan':
        """The inverse of `to_json`; the event is rebuilt from the mechanisms."""
        fields = {k: v for k, v in fields.items() if k != 'dp_event'}
        fields['mechanisms'] = tuple(
            Mechanism(**{**m, 'l2_sensitivity': _or_infinity(m['l2_sensitivity'])})
            for m in fields['mechanisms']
        )
        return cls(**{'claimed_epsilon': None, **fields})


def _or_infinity(value: float | None) -> float:
    return math.inf if value is None else value


def event_to_json(event: 'dp_accounting.DpEvent') -> dict[str, Any]:
    """A dp-accounting event as nested objects: its class and its arguments by name."""
    # vars() does not see attrs classes with slots; their fields are the arguments.
    arguments = {
        field: getattr(event, field) for field in event.to_named_tuple()._fields[2:]
    }
    return {'class': type(event).__name__} | {
        name: _argument_to_json(value) for name, value in arguments.items()
    }


def _argument_to_json(value: Any) -> Any:
    import dp_accounting  # late

    if isinstance(value, dp_accounting.DpEvent):
        return event_to_json(value)
    if isinstance(value, list | tuple):
        return [_argument_to_json(v) for v in value]
    return value


def event_from_json(fields: dict[str, Any]) -> 'dp_accounting.DpEvent':
    """Rebuilds an event from `event_to_json`'s output."""
    import dp_accounting  # late

    cls = getattr(dp_accounting, fields['class'])
    return cls(**{k: _argument_from_json(v) for k, v in fields.items() if k != 'class'})


def _argument_from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return event_from_json(value)
    if isinstance(value, list):
        return [_argument_from_json(v) for v in value]
    return value


def describe(plan: PrivacyPlan) -> str:
    """The plan as a table for a terminal."""
    head = f'{"mechanism":<10} {"sigma":>8} {"q":>10} {"steps":>8} {"sensitivity":>12}'
    rows = [
        f'{m.name:<10} {m.noise_multiplier:>8.4g} {m.sampling_prob:>10.4g} '
        f'{m.steps:>8} {m.l2_sensitivity:>12.5g}   {m.kind}'
        for m in plan
    ]
    if plan.epsilon is not None:
        total = f'epsilon {plan.epsilon} (PLD), {plan.epsilon_rdp} (RDP)'
    elif plan.claimed_epsilon is not None:
        total = f'claimed epsilon {plan.claimed_epsilon}, certified epsilon: none'
    else:
        total = 'epsilon: none'
    total += f' at delta {plan.delta:g}, of which overflow {plan.overflow_delta:.2g}'
    return '\n'.join([head, *rows, total, f'guarantee: {plan.guarantee}'])


def dumps(plan: PrivacyPlan) -> str:
    """`to_json` as text."""
    return json.dumps(plan.to_json(), indent=2, allow_nan=False) + '\n'
