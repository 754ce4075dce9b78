"""Audits of a run's coins: who is drawn, and from which keys noise is made.

Every test here is exact: under the claim its statistic is binomial, or a sum of coins of
several chances that spreads no more, because it counts each coin once.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy import stats

from dpaf_jax.audit.findings import POWERLESS, Check, Outcome
from dpaf_jax.audit.target import Draws, Seen, Trace
from dpaf_jax.audit.white_box import uncorrelated
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan

NOISE_STEPS = 32  # whose noise is compared
NOISE_VALUES = 50_000  # of each
MOST_KEYS = 100_000  # of a mechanism, that are compared


def checks(
    trace: Trace, noise: Mapping[str, Callable[[np.ndarray], np.ndarray]]
) -> list[Check]:
    """Checks of a trace.

    Args:
        trace: of the run.
        noise: as `Trace.noise`, for the plan's mechanisms.
    """
    noise = {**noise, **trace.noise}
    check = Check.of
    made = [check('plan', 'noise keys', 'all purposes', _keys, trace)]
    for name, draws in trace.draws.items():
        made.append(check(name, 'inclusion', 'rate', _rate, draws))
        made.append(check(name, 'inclusion', 'twice in a draw', _twice, draws))
        if draws.sampling_prob < 1:
            made.append(check(name, 'inclusion', 'sizes', _sizes, draws))
        period = _period(draws)
        if draws.sampling_prob < 1 and period:
            two = check(name, 'inclusion', 'two steps', _two_steps, draws, period)
            made.append(two)
        if draws.num_groups > 1:
            made.append(check(name, 'inclusion', 'two in a group', _groups, draws))
    random = {n: draws for n, draws in trace.draws.items() if draws.sampling_prob < 1}
    for pair in itertools.combinations(random, 2):
        both = [random[name] for name in pair]
        made.append(check(_named(pair), 'inclusion', 'same step', _overlap, *both, 1))
    for pair, steps in trace.steps_per_draw.items():
        if random.keys() >= {*pair}:
            both = [random[name] for name in pair]
            case = 'same window'
            made.append(check(_named(pair), 'inclusion', case, _overlap, *both, steps))
    kind, values = 'noise independence', _Noise(trace, noise)
    for name in noise:
        if len(trace.keys[name]) > 1:
            made.append(check(name, kind, 'two steps', values.steps, name))
    for pair in itertools.combinations(noise, 2):
        made.append(check(_named(pair), kind, 'same step', values.both, *pair))
    return made


def plan_checks(
    trace: Trace, plan: PrivacyPlan, worlds: tuple[RunKeys, RunKeys], turns: int
) -> list[Check]:
    """Checks that hold a whole run against its plan.

    Args:
        trace: of the run.
        plan: of the run, without a class histogram: that is nobody's step.
        worlds: keys under two entropies.
        turns: at most so many keys a step: a class-pure release takes one a turn.
    """
    check = Check.of
    made = [check('plan', 'noise keys', 'whole run', _every_key, plan, worlds, turns)]
    for m in plan:
        made.append(check(m.name, 'steps', 'whole run', _steps, trace, m))
        if m.name in trace.whole:
            draws = trace.draws[m.name]
            made.append(check(m.name, 'steps', 'of one record', _turns, draws, m))
    for name, seen in trace.parts.items():
        made.append(check(name, 'parts', 'disjoint', _parts, seen))
    return made


def _every_key(
    plan: PrivacyPlan,
    worlds: tuple[RunKeys, RunKeys],
    turns: int,
    _: float,
) -> Outcome:
    number, every = 0, set[bytes]()
    for m in plan:
        for step in range(min(turns * m.steps, MOST_KEYS)):
            every |= {keys.noise(m.name, step).tobytes() for keys in worlds}
            number += len(worlds)
    repeated = number - len(every)
    return Outcome(repeated == 0, repeated, 0.0, f'repeated of {number} keys')


def _steps(trace: Trace, m: Mechanism, _: float) -> Outcome:
    made = trace.charged.get(m.name, 0)
    detail = f'steps, where {m.steps} are charged'
    return Outcome(made == m.steps, made, m.steps, detail)


def _turns(draws: Draws, m: Mechanism, _: float) -> Outcome:
    """How many steps a record may be drawn in, whatever the phase says that it charges."""
    most = int(np.bincount(np.concatenate(draws.eligible)).max(initial=0))
    detail = f'steps, where {m.steps} are charged'
    return Outcome(most <= m.steps, most, m.steps, detail)


def _parts(seen: Sequence[Seen], _: float) -> Outcome:
    """Records that a second part sees, of those that are seen again."""
    number = 1 + max(int(records.max(initial=0)) for records, _ in seen)
    part_of = np.full(number, -1)
    again, moved = 0, 0
    for records, parts in seen:
        before = part_of[records]
        again += int(np.sum(before >= 0))
        moved += int(np.sum((before >= 0) & (before != parts)))
        part_of[records] = parts
    told = f'records moved to another part, of {again} that were seen again'
    if not again:
        told += f': {POWERLESS}'
    return Outcome(moved == 0, moved, 0.0, told, has_power=again > 0)


def _named(pair: tuple[str, str]) -> str:
    return ' and '.join(pair)


def _keys(trace: Trace, _: float) -> Outcome:
    every = [key.tobytes() for keys in trace.keys.values() for key in keys]
    repeated = len(every) - len(set(every))
    # 128 bits at least: that any two meet has no chance worth a name.
    return Outcome(repeated == 0, repeated, 0.0, f'repeated of {len(every)} keys')


def _binomial(count: int, trials: int, prob: float, what: str, alpha: float) -> Outcome:
    p = float(stats.binomtest(count, trials, min(prob, 1.0)).pvalue)
    detail = f'p; {what}: {count}, expected {trials * prob:.1f}'
    return Outcome(p >= alpha, p, alpha, detail)


def _could_tell(faulty: int, made: Outcome, trials: int, prob: float) -> Outcome:
    """The same outcome, marked where even the count of a faulty draw would pass."""
    if stats.binomtest(faulty, trials, min(prob, 1.0)).pvalue < made.claimed:
        return made
    detail = f'{made.detail}; too few: {POWERLESS}'
    return made._replace(detail=detail, has_power=False)


def _rate(draws: Draws, alpha: float) -> Outcome:
    chosen = sum(len(np.unique(c)) for c in draws.chosen)
    trials = sum(len(e) for e in draws.eligible)
    return _binomial(chosen, trials, draws.sampling_prob, 'drawn', alpha)


def _twice(draws: Draws, _: float) -> Outcome:
    """A record that is drawn twice moves a sum twice as far."""
    repeated = sum(len(c) - len(np.unique(c)) for c in draws.chosen)
    detail = f'records drawn twice, in {len(draws.chosen)} draws'
    return Outcome(repeated == 0, repeated, 0.0, detail)


def _sizes(draws: Draws, alpha: float) -> Outcome:
    """Draws between the quartiles of a Poisson draw's size: of batches of one size all are."""
    sizes = [len(c) for c in draws.chosen]
    number = [len(e) for e in draws.eligible]
    low, high = stats.binom.ppf([[0.25], [0.75]], number, draws.sampling_prob)
    each = stats.binom(number, draws.sampling_prob)
    prob = float(np.mean(each.cdf(high) - each.cdf(low - 1)))
    within = int(np.sum((low <= sizes) & (sizes <= high)))
    made = _binomial(within, len(sizes), prob, 'draws of a middling size', alpha)
    return _could_tell(len(sizes), made, len(sizes), prob)


def _period(draws: Draws) -> int:
    """Steps until somebody's next turn; 0 where nobody was seen to have two."""
    return next(
        (
            step
            for step, eligible in enumerate(draws.eligible[1:], 1)
            if len(np.intersect1d(draws.eligible[0], eligible))
        ),
        0,
    )


def _two_steps(draws: Draws, period: int, alpha: float) -> Outcome:
    """Who is in a turn and in the next one; every step counts once."""
    both = trials = 0
    for start in range(0, len(draws.chosen) - period, 2 * period):
        for t in range(start, min(start + period, len(draws.chosen) - period)):
            both += len(np.intersect1d(draws.chosen[t], draws.chosen[t + period]))
            trials += len(draws.eligible[t])
    prob = draws.sampling_prob**2
    made = _binomial(both, trials, prob, 'in two steps', alpha)
    return _could_tell(0, made, trials, prob)  # as where all are drawn in turn


def _groups(draws: Draws, alpha: float) -> Outcome:
    """Pairs of records of a draw that share a group; every record counts once."""
    same = pairs = 0
    for chosen, groups in zip(draws.chosen, draws.groups, strict=True):
        by_record = groups[np.argsort(chosen)]
        number = len(by_record) // 2
        same += int(
            np.sum(by_record[: 2 * number : 2] == by_record[1 : 2 * number : 2])
        )
        pairs += number
    return _binomial(same, pairs, 1 / draws.num_groups, 'pairs in one group', alpha)


def _overlap(one: Draws, other: Draws, steps: int, alpha: float) -> Outcome:
    """Who is in a draw of `other` and in any of the `steps` draws of `one` beside it."""
    both, expected, trials = 0, 0.0, 0
    for i, chosen in enumerate(other.chosen):
        mine = range(i * steps, min((i + 1) * steps, len(one.chosen)))
        if not mine:
            break
        union = functools.reduce(np.union1d, [one.chosen[t] for t in mine])
        both += len(np.intersect1d(union, chosen))
        # Turns that a record has among these steps: the same for all of a class.
        turns = np.bincount(
            np.concatenate([one.eligible[t] for t in mine]),
            minlength=len(other.eligible[i]),
        )
        at_all = 1 - (1 - one.sampling_prob) ** turns[other.eligible[i]]
        expected += float(np.sum(at_all)) * other.sampling_prob
        trials += len(other.eligible[i])
    # Of all sums of independent coins with this mean the binomial spreads most.
    return _binomial(both, trials, expected / trials, 'in both', alpha)


class _Noise:
    """The noise that the first keys of each purpose make, in units of its std."""

    def __init__(
        self, trace: Trace, noise: Mapping[str, Callable[[np.ndarray], np.ndarray]]
    ):
        self._trace, self._noise = trace, noise

    @functools.cache  # noqa: B019 (an audit lives as long as the command)
    def _values(self, name: str) -> np.ndarray:
        return self._noise[name](self._trace.keys[name][:NOISE_STEPS])[:, :NOISE_VALUES]

    def steps(self, name: str, alpha: float) -> Outcome:
        values = self._values(name)
        return uncorrelated(values[1:], values[:-1], alpha)

    def both(self, one: str, other: str, alpha: float) -> Outcome:
        a, b = self._values(one), self._values(other)
        rows, columns = min(len(a), len(b)), min(a.shape[1], b.shape[1])
        return uncorrelated(a[:rows, :columns], b[:rows, :columns], alpha)
