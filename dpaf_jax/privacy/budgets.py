"""From (epsilon1, rest, epsilon3) to a plan whose composition meets the target."""

import bisect
import dataclasses
import logging
import math
from collections.abc import Sequence

from dpaf_jax.config import PrivacyConfig
from dpaf_jax.privacy import accounting, published
from dpaf_jax.privacy.grid import MAX_CONTRIBUTIONS
from dpaf_jax.privacy.noise import TAIL_DELTA
from dpaf_jax.privacy.plan import ACCOUNTANT, CERTIFIED, Mechanism, PrivacyPlan
from dpaf_jax.runtime.errors import UserError

FIELD = 'config.privacy.budgets'
NO_NOISE = 'none (epsilon is infinite: no noise, no clipping)'
NO_NOISE_OVERFLOW = 1e-6  # chance that such a run cuts a draw


def parse(
    budgets: str,
    names: Sequence[str],
    epsilon: float,
    present: Sequence[str] | None = None,
) -> dict[str, float | None]:
    """Reads a budget string such as '0.1,rest,0.1' or '20%,60%,20%'.

    Args:
        budgets: one entry per name: an absolute epsilon, a percentage of `epsilon`,
            or 'rest' (at most once). Not read for a single name, which takes everything.
        names: the method's mechanisms in the order of the entries.
        epsilon: the total.
        present: those that the run has; the others' entries are not added up.

    Returns:
        Epsilon by name; None stands for the rest.

    Raises:
        UserError: for a malformed entry or shares that exceed the total.
    """
    if len(names) == 1:  # nothing to share out
        return {names[0]: None}
    entries = [entry.strip() for entry in budgets.split(',')]
    if len(entries) != len(names):
        raise UserError(
            FIELD,
            f'has {len(entries)} entries',
            f'Give one for each of {", ".join(names)}',
        )
    shares = {n: _share(e, epsilon) for n, e in zip(names, entries, strict=True)}
    used = [shares[n] for n in (names if present is None else present)]
    given = sum(share for share in used if share is not None)
    if list(shares.values()).count(None) > 1:
        raise UserError(FIELD, f"is {budgets!r}, with two times 'rest'", 'Keep one')
    too_much = given > epsilon * (1 + 1e-9) or (None in used and given >= epsilon)
    if too_much and len(used) > 1:  # a lone mechanism takes everything
        raise UserError(
            FIELD,
            f'is {budgets!r}, which adds up to {given:g} of epsilon {epsilon:g}',
            "Lower the shares (and leave something for 'rest')",
        )
    return shares


def _share(entry: str, epsilon: float) -> float | None:
    if entry == 'rest':
        return None
    try:
        share = float(entry[:-1]) * epsilon / 100 if entry[-1:] == '%' else float(entry)
    except ValueError:
        share = math.nan
    if not (share > 0 and math.isfinite(share)) and math.isfinite(epsilon):
        raise UserError(FIELD, f'has the entry {entry!r}', "Use '0.1', '20%' or 'rest'")
    return share


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
    present = [m.name for m in mechanisms]
    shares = parse(privacy.budgets, names, privacy.epsilon, present)
    shares = _with_rest(shares, present, rest_order, privacy.epsilon)
    too_large = _excessive(privacy.delta, num_examples)
    if privacy.as_published and published_reason:
        if too_large:
            logging.warning('%s', too_large)
        settled = published.calibrate(
            mechanisms, shares, privacy.epsilon, privacy.delta
        )
        claimed = published.epsilon(settled, privacy.delta)
        return _plan(
            settled,
            _as_published(published_reason),
            privacy.delta,
            num_examples,
            claimed=accounting.round_up(claimed),
        )
    if too_large:
        raise too_large
    try:
        return _certified(mechanisms, shares, privacy, num_examples)
    except accounting.LittleNoiseError as error:
        if len(mechanisms) == 1:
            raise
        told = _of_all(error, mechanisms, names, rest_order, privacy, num_examples)
        raise told from error


def _of_all(
    error: accounting.LittleNoiseError,
    mechanisms: Sequence[Mechanism],
    names: Sequence[str],
    rest_order: Sequence[str],
    privacy: PrivacyConfig,
    num_examples: int,
) -> UserError:
    """The refusal with an epsilon of all mechanisms together that is not refused."""
    present = [m.name for m in mechanisms]

    def is_met(epsilon: float) -> bool:
        less = dataclasses.replace(privacy, epsilon=epsilon)
        try:
            shares = parse(less.budgets, names, epsilon, present)
            shares = _with_rest(shares, present, rest_order, epsilon)
            _certified(mechanisms, shares, less, num_examples)
        except UserError:
            return False
        return True

    smaller = _smaller(privacy.epsilon)
    found = bisect.bisect_left(smaller, True, key=is_met)
    remedy = f'Ask for {smaller[found]:g}' if found < len(smaller) else 'Ask for less'
    problem = error.problem_at(privacy.epsilon)
    return UserError(error.where, problem, f'{remedy}, or change {FIELD}')


def _smaller(epsilon: float) -> list[float]:
    """Epsilons of one digit below, down to a thousandth of it, the largest first."""
    power = math.floor(math.log10(epsilon))
    made = (
        float(f'{digit}e{exponent}')
        for exponent in range(power, power - 4, -1)
        for digit in (7, 5, 3, 2, 1)
    )
    return [each for each in made if each < epsilon]


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


def _certified(
    mechanisms: Sequence[Mechanism],
    shares: dict[str, float | None],
    privacy: PrivacyConfig,
    num_examples: int,
) -> PrivacyPlan:
    fitted = _fitted(mechanisms, privacy, num_examples)
    beta = _overflow(fitted, num_examples)
    delta = privacy.delta - beta
    settled = [
        accounting.calibrate(m, (), share, delta)
        for m in fitted
        if (share := shares[m.name]) is not None
    ]
    for mechanism in fitted:
        if shares[mechanism.name] is None:
            last = accounting.calibrate(mechanism, settled, privacy.epsilon, delta)
            settled.append(last)
    order = [m.name for m in mechanisms]
    settled.sort(key=lambda m: order.index(m.name))
    return _composed(settled, beta, privacy, num_examples)


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
        fitted, (), privacy.epsilon, privacy.delta - beta
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
        UserError: as_published, whose claims and neighbours are others.
    """
    if privacy.as_published:
        problem = 'is above 0, where config.privacy.guarantee is as_published'
        remedy = 'Set it to 0: the papers release no class histogram this way'
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
        fitted, plan.mechanisms, privacy.epsilon, privacy.delta - beta
    )
    return _composed([*plan.mechanisms, last], beta, privacy, plan.num_examples)


def _composed(
    settled: Sequence[Mechanism],
    beta: float,
    privacy: PrivacyConfig,
    num_examples: int,
) -> PrivacyPlan:
    """The certified plan of settled mechanisms, with its epsilon."""
    delta = privacy.delta - beta
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
    coarser = accounting.pld_grid(by_rdp) / accounting.PLD_GRID
    return dataclasses.replace(
        plan,
        epsilon=min(accounting.round_up(epsilon), privacy.epsilon),
        epsilon_rdp=accounting.round_up(by_rdp),
        accountant=ACCOUNTANT.replace('1e-4', f'{coarser:g}e-4'),
    )


def _check_tail(settled: Sequence[Mechanism], delta: float) -> None:
    """What the noise's tail owes in all must be next to nothing of delta."""
    releases = sum(m.steps * m.sampling_prob for m in settled)
    if (owed := TAIL_DELTA * releases) > delta / 1000:
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


def _with_rest(
    shares: dict[str, float | None],
    present: Sequence[str],
    rest_order: Sequence[str],
    epsilon: float,
) -> dict[str, float | None]:
    """Keeps the shares of mechanisms that exist; one of them takes what is left.

    Where the given shares are all of epsilon, or a share belongs to a mechanism that
    this run does not have, the first of `rest_order` absorbs the difference: a run
    spends what it was given.
    """
    kept = {name: shares[name] for name in present}
    whole = all(v is not None for v in shares.values()) and math.isclose(
        sum(v for v in shares.values() if v is not None), epsilon
    )
    absent = len(kept) < len(shares)
    if kept and None not in kept.values() and (whole or absent):
        kept[next(name for name in rest_order if name in kept)] = None
    return kept


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
