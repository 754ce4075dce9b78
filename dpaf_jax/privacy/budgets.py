"""From (epsilon1, rest, epsilon3) to a plan whose composition meets the target."""

import bisect
import dataclasses
import logging
import math
from collections.abc import Sequence

from dpaf_jax.config import PrivacyConfig
from dpaf_jax.privacy import accounting, published
from dpaf_jax.privacy.accounting.shares import FIELD
from dpaf_jax.privacy.grid import MAX_CONTRIBUTIONS
from dpaf_jax.privacy.noise import tail_delta
from dpaf_jax.privacy.plan import ACCOUNTANT, CERTIFIED, Mechanism, PrivacyPlan
from dpaf_jax.runtime.errors import UserError

NO_NOISE = 'none (epsilon is infinite: no noise, no clipping)'
NO_NOISE_OVERFLOW = 1e-6  # chance that such a run cuts a draw


def check_batch_size(
    field: str, batch_size: int, num_examples: int, otherwise: str = ''
) -> None:
    """UserError where a step expects more records than there are.

    Args:
        field: of the config, such as 'config.dp_gan.batch_size'.
        batch_size: expected records of a step.
        num_examples: N, public.
        otherwise: another remedy than a tenth of the records.
    """
    if batch_size > num_examples:
        problem = f'asks for {batch_size} images a step of only {num_examples}'
        tenth = max(num_examples // 10, 1)
        raise UserError(field, problem, f'Lower it, such as to {tenth}{otherwise}')


def make_plan(
    mechanisms: Sequence[Mechanism],
    names: Sequence[str],
    rest_order: Sequence[str],
    privacy: PrivacyConfig,
    num_examples: int,
    published_reason: str | None,
) -> PrivacyPlan:
    """Settles capacity and noise of every mechanism.

    Args:
        mechanisms: those that the run uses, without noise; capacity still open.
        names: all mechanisms that the method knows, in the order of the budgets.
        rest_order: who takes what is left over, first present first: the budget of an
            absent mechanism, and what composing saves against adding.
        privacy: the guarantee asked for.
        num_examples: N.
        published_reason: why `as_published` certifies nothing, for its report; None for
            a method whose printed proof holds: then the same is certified in both modes.

    Returns:
        The plan; its epsilon never exceeds `privacy.epsilon`.

    Raises:
        UserError: the budgets cannot be met, or a certified delta is not below 1 / N.
    """
    if not privacy.is_private:
        # Draws are padded: leave them room.
        if privacy.guarantee == 'certified' or not published_reason:
            mechanisms = _fitted(mechanisms, privacy, num_examples)
        return _plan(mechanisms, NO_NOISE, privacy.delta, num_examples)
    request = _Request(mechanisms, names, rest_order, privacy, num_examples)
    too_large = _excessive(privacy.delta, num_examples)
    if privacy.as_published and published_reason:
        if too_large:
            logging.warning('%s', too_large)
        return request.claimed(published_reason)
    if too_large:
        raise too_large
    try:
        return request.certified()
    except accounting.LittleNoiseError as error:
        if len(mechanisms) == 1:
            raise
        raise request.refusal_of_all(error) from error


@dataclasses.dataclass(frozen=True)
class _Request:
    """What `make_plan` is asked for, with noise."""

    mechanisms: Sequence[Mechanism]
    names: Sequence[str]
    rest_order: Sequence[str]
    privacy: PrivacyConfig
    num_examples: int

    @property
    def shares(self) -> dict[str, float | None]:
        present = [m.name for m in self.mechanisms]
        return accounting.shares_of(self.privacy, self.names, present, self.rest_order)

    def claimed(self, reason: str) -> PrivacyPlan:
        """By the paper's own theorem, which certifies nothing."""
        epsilon, delta = self.privacy.epsilon, self.privacy.delta
        settled = published.calibrate(self.mechanisms, self.shares, epsilon, delta)
        claimed = accounting.round_up(published.epsilon(settled, delta))
        guarantee = _as_published(reason)
        return _plan(settled, guarantee, delta, self.num_examples, claimed=claimed)

    def certified(self) -> PrivacyPlan:
        """Mechanisms with a share of their own first; the last takes what is left over."""
        privacy, shares = self.privacy, self.shares
        fitted = _fitted(self.mechanisms, privacy, self.num_examples)
        beta = _overflow(fitted, self.num_examples)
        delta = _left(privacy.delta, beta, fitted)
        settled = [
            accounting.calibrate(m, (), share, delta)
            for m in fitted
            if (share := shares[m.name]) is not None
        ]
        for mechanism in fitted:
            if shares[mechanism.name] is None:
                last = accounting.calibrate(mechanism, settled, privacy.epsilon, delta)
                settled.append(last)
        order = [m.name for m in self.mechanisms]
        settled.sort(key=lambda m: order.index(m.name))
        return _composed(settled, beta, privacy, self.num_examples)

    def refusal_of_all(self, error: accounting.LittleNoiseError) -> UserError:
        """The refusal with an epsilon of all mechanisms together that is not refused."""

        def is_met(epsilon: float) -> bool:
            less = dataclasses.replace(self.privacy, epsilon=epsilon)
            try:
                dataclasses.replace(self, privacy=less).certified()
            except UserError:
                return False
            return True

        smaller = accounting.smaller(self.privacy.epsilon)
        found = bisect.bisect_left(smaller, True, key=is_met)
        advised = f'{smaller[found]:g}' if found < len(smaller) else 'less'
        problem = error.problem_at(self.privacy.epsilon)
        return UserError(error.where, problem, f'Ask for {advised}, or change {FIELD}')


def plan_of_one(
    mechanism: Mechanism,
    privacy: PrivacyConfig,
    num_examples: int,
    published_reason: str | None = None,
) -> PrivacyPlan:
    """As `make_plan`, for a method of one mechanism, which takes all of epsilon."""
    only = (mechanism.name,)
    return make_plan([mechanism], only, only, privacy, num_examples, published_reason)


def claimed_plan(
    mechanism: Mechanism, privacy: PrivacyConfig, num_examples: int, reason: str
) -> PrivacyPlan:
    """The plan of a run as published, whose noise is settled as printed.

    Args:
        mechanism: with its noise.
        privacy: epsilon is what the paper claims.
        num_examples: N.
        reason: why nothing is certified.
    """
    guarantee = _as_published(reason)
    return _plan(
        [mechanism], guarantee, privacy.delta, num_examples, claimed=privacy.epsilon
    )


def _as_published(reason: str) -> str:
    return f'none (as published: {reason})'


def make_joint_plan(
    mechanisms: Sequence[Mechanism], privacy: PrivacyConfig, num_examples: int
) -> PrivacyPlan:
    """Settles mechanisms that take the whole budget together, in given proportions.

    Args:
        mechanisms: their noise_multipliers are the proportions; their draws are dealt
            alike, so all get the largest capacity among them.
        privacy: the guarantee asked for; `budgets` is not read.
        num_examples: N.

    Returns:
        A certified plan (none where epsilon is infinite).

    Raises:
        UserError: the budget cannot be met, or delta is not below 1 / N.
    """
    fitted = _fitted(mechanisms, privacy, num_examples)
    largest = max(m.capacity for m in fitted)
    fitted = [dataclasses.replace(m, capacity=largest) for m in fitted]
    if not privacy.is_private:
        return _plan(_silent(fitted), NO_NOISE, privacy.delta, num_examples)
    if too_large := _excessive(privacy.delta, num_examples):
        raise too_large
    beta = _overflow(fitted, num_examples)
    settled = accounting.calibrate_together(
        fitted, (), privacy.epsilon, _left(privacy.delta, beta, fitted)
    )
    return _composed(settled, beta, privacy, num_examples)


def with_first(
    first: Mechanism, plan: PrivacyPlan, privacy: PrivacyConfig
) -> PrivacyPlan:
    """A plan with a settled mechanism in front, and the epsilon of both together.

    Args:
        first: with its noise.
        plan: of all others, with what `first` leaves of epsilon.
        privacy: the guarantee asked for, for both.

    Raises:
        UserError: the plan is one as published that certifies nothing.
    """
    if privacy.as_published and plan.guarantee != CERTIFIED:
        problem = 'is above 0, where config.privacy.guarantee is as_published'
        remedy = 'Set it to 0: no epsilon of the whole could be stated'
        raise UserError('config.data.noisy_prior', problem, remedy)
    settled = [first, *plan.mechanisms]
    if plan.guarantee == NO_NOISE:
        return dataclasses.replace(plan, mechanisms=tuple(settled))
    return _composed(settled, plan.overflow_delta, privacy, plan.num_examples)


def with_last(
    plan: PrivacyPlan, mechanism: Mechanism, privacy: PrivacyConfig
) -> PrivacyPlan:
    """A plan with one more mechanism, which takes what the others leave of epsilon.

    Args:
        plan: certified, or without noise where epsilon is infinite.
        mechanism: whose noise is sought.
        privacy: the guarantee asked for, for all.

    Raises:
        UserError: the others have left nothing.
    """
    (fitted,) = _fitted([mechanism], privacy, plan.num_examples)
    if not privacy.is_private:
        settled = (*plan.mechanisms, *_silent([fitted]))
        return dataclasses.replace(plan, mechanisms=settled)
    beta = plan.overflow_delta + _overflow([fitted], plan.num_examples)
    last = accounting.calibrate(
        fitted,
        plan.mechanisms,
        privacy.epsilon,
        _left(privacy.delta, beta, [*plan.mechanisms, fitted]),
    )
    return _composed([*plan.mechanisms, last], beta, privacy, plan.num_examples)


def _composed(
    settled: Sequence[Mechanism],
    beta: float,
    privacy: PrivacyConfig,
    num_examples: int,
) -> PrivacyPlan:
    """The certified plan of settled mechanisms, with its epsilon."""
    delta = _left(privacy.delta, beta, settled)
    plan = _plan(settled, CERTIFIED, privacy.delta, num_examples, overflow=beta)
    event = plan.dp_event
    epsilon, by_rdp = (
        spent(event, delta)
        for spent in (accounting.epsilon_pld, accounting.epsilon_rdp)
    )
    _check_tail(settled, privacy.delta)
    if epsilon > privacy.epsilon:
        raise UserError(
            FIELD,
            f'compose to epsilon {epsilon:.4f}, above {privacy.epsilon:g}',
            "Lower one share or make it 'rest'",
        )
    return dataclasses.replace(
        plan,
        epsilon=min(accounting.round_up(epsilon), privacy.epsilon),
        epsilon_rdp=accounting.round_up(by_rdp),
        accountant=ACCOUNTANT.replace('1e-4', f'{accounting.coarseness(by_rdp):g}e-4'),
    )


def _left(delta: float, beta: float, mechanisms: Sequence[Mechanism]) -> float:
    """What draws that exceed their capacity and the noise's tail leave of delta."""
    return delta - beta - tail_delta(_releases(mechanisms))


def _releases(mechanisms: Sequence[Mechanism]) -> float:
    """In how many a record is expected to take part."""
    return sum(m.steps * m.sampling_prob for m in mechanisms)


def _check_tail(settled: Sequence[Mechanism], delta: float) -> None:
    """What the noise's tail owes in all must be next to nothing of delta."""
    releases = _releases(settled)
    if (owed := tail_delta(releases)) > delta / 1000:
        raise UserError(
            'config.privacy.delta',
            f'is {delta:g}, and the noise of {releases:.0f} releases falls short by '
            f'{owed:.1g}',
            f'Use {_one_digit_up(1000 * owed)} or more, or fewer steps',
        )


def _one_digit_up(value: float) -> str:
    """In the notation of 2e-10, never below the value."""
    power = math.floor(math.log10(value))
    return f'{math.ceil(value / 10.0**power - 1e-9):g}e{power}'


def _fitted(
    mechanisms: Sequence[Mechanism], privacy: PrivacyConfig, num_examples: int
) -> list[Mechanism]:
    """With the capacity that draws exceed rarely enough."""
    certified = privacy.delta * privacy.overflow_fraction
    each = (certified if privacy.is_private else NO_NOISE_OVERFLOW) / len(mechanisms)
    fitted = [accounting.fit_capacity(m, num_examples, each) for m in mechanisms]
    for m in fitted:
        if m.capacity > MAX_CONTRIBUTIONS:
            raise UserError(
                'config.data.num_examples',
                f'lets {m.name} add up to {m.capacity} records at a time, where exact sums '
                f'have room for {MAX_CONTRIBUTIONS}',
                "Lower the mechanism's batch size, or use fewer records",
            )
    return fitted


def _overflow(fitted: Sequence[Mechanism], num_examples: int) -> float:
    """Beta: the chance that some draw exceeds its capacity."""
    return sum(accounting.overflow_delta(m, num_examples) for m in fitted)


def _silent(fitted: Sequence[Mechanism]) -> list[Mechanism]:
    return [dataclasses.replace(m, noise_multiplier=0.0) for m in fitted]


def _plan(
    mechanisms: Sequence[Mechanism],
    guarantee: str,
    delta: float,
    num_examples: int,
    *,
    claimed: float | None = None,
    overflow: float = 0.0,
) -> PrivacyPlan:
    return PrivacyPlan(
        mechanisms=tuple(mechanisms),
        guarantee=guarantee,
        epsilon=None,
        epsilon_rdp=None,
        claimed_epsilon=claimed,
        delta=delta,
        overflow_delta=overflow,
        num_examples=num_examples,
    )


def _excessive(delta: float, num_examples: int) -> UserError | None:
    """The error of a delta of 1 / N or more: publishing one record would pass; or None."""
    if delta < 1 / num_examples:
        return None
    return UserError(
        'config.privacy.delta',
        f'is {delta:g}, not below 1 / num_examples = {1 / num_examples:.3g}: to publish one '
        'image in full, at random, would pass',
        f'Use {0.1 / num_examples:.0e} or less',
    )
