"""Whether privacy.json and the model card follow from config.json, number by number."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from scipy import stats

from dpaf_jax import methods
from dpaf_jax.config import Config
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.noise import tail_delta
from dpaf_jax.privacy.plan import (
    FIXED_ENTROPY,
    PrivacyPlan,
    event_from_json,
    event_to_json,
)
from dpaf_jax.release.bundle import CARD
from dpaf_jax.release.card import (
    EARLIER_ONE_IMAGE,
    MODELS,
    ONE_IMAGE,
    SHOWN,
    SHOWN_UNBENT,
    TABLE_MODELS,
    bends,
    figures_head,
    model_card,
)
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify import accountant
from dpaf_jax.verify.check import Check
from dpaf_jax.verify.contents import same

# What is copied is compared exactly. What is computed anew may differ in the last digits
# between versions of the libraries.
COMPUTED = {
    'noise_multiplier', 'overflow_delta', 'epsilon', 'epsilon_rdp', 'claimed_epsilon',
}  # fmt: skip
RELATIVE = 1e-9  # for those
AGREEMENT = 0.01  # how far the third accountant's upper bound may exceed what is stated
MAX_EPSILON = 1e6  # by Renyi DP; no budget, and no plan has more
MAX_STEPS = 10**7  # of all queries; more would take the accountant gigabytes
FIGURE = r'(?:[01]\.\d{3}|nan)'  # of a card's table


class Epsilons(NamedTuple):
    """One composition by three accountants."""

    pld: float
    rdp: float
    bounds: accountant.Bounds | None  # None: delta is too small for it


def rebuild(config: Config, num_examples: int) -> PrivacyPlan:
    """The plan that the method makes for a public config."""
    return methods.plan(config, num_examples)


def recompute(stated: dict[str, Any]) -> Epsilons:
    """Epsilon of `dp_event` at delta - overflow_delta, less what the noise's tail owes.

    Raises:
        ValueError: the event or delta is out of reach.
    """
    queries = accountant.queries_of(stated['dp_event'])
    if (steps := sum(query.steps for query in queries)) > MAX_STEPS:
        raise ValueError(f'has {steps} steps, more than {MAX_STEPS}')
    low, high = accounting.MIN_NOISE_MULTIPLIER, accounting.MAX_NOISE_MULTIPLIER
    normal = [
        query for query in queries if isinstance(query, accountant.SampledGaussian)
    ]
    if not all(low <= query.noise_multiplier <= 2 * high for query in normal):
        raise ValueError(f'a noise_multiplier is not within {low:g} and {high:g}')
    owed = tail_delta(sum(query.steps * query.sampling_prob for query in normal))
    delta = stated['delta'] - stated['overflow_delta'] - owed
    if not 0 < delta < 1:
        raise ValueError(f'delta less what is owed is {delta:g}')
    event = event_from_json(stated['dp_event'])
    rdp = accounting.epsilon_rdp(event, delta)
    if not rdp <= MAX_EPSILON:
        raise ValueError(f'epsilon is {rdp:g} by Renyi DP')
    try:
        bounds = accountant.epsilon_bounds(queries, delta)
    except ValueError:
        bounds = None
    return Epsilons(accounting.epsilon_pld(event, delta), rdp, bounds)


def check_statement(
    stated: Any,
    card: str,
    config: Config,
    rebuild: Callable[[Config, int], PrivacyPlan] = rebuild,
    recompute: Callable[[dict[str, Any]], Epsilons] = recompute,
) -> list[Check]:
    """Checks privacy.json and the card against the config and against themselves.

    Args:
        stated: privacy.json as parsed; anything at all.
        card: the text of README.md.
        config: of the release.
        rebuild: for tests, which know the plan already.
        recompute: for tests, which know epsilon already.
    """
    number = stated.get('num_examples') if isinstance(stated, dict) else None
    if type(number) is not int or number < 1:
        return [Check('plan', False, 'privacy.json has no num_examples')]
    try:
        expected = rebuild(config, number)
    except (UserError, ValueError, ArithmeticError) as error:
        return [Check('plan', False, f'cannot be rebuilt from config.json: {error}')]
    if stated.get('guarantee') == FIXED_ENTROPY:
        expected = dataclasses.replace(expected, guarantee=FIXED_ENTROPY)
    fields = expected.to_json()
    different = list(_differences(stated, fields, ''))
    checks = [
        Check('plan', False, _few([text for text, _ in different]))
        if different
        else Check('plan', True, f'every field as config.json and N = {number} give it')
    ]
    checks += _check_number(number, config.data.num_examples)
    if any(structural for _, structural in different):
        return checks  # whatever is computed from other fields means nothing
    checks += [_check_event(stated), *_check_delta(stated)]
    checks += _check_epsilon(stated, config, recompute)
    try:
        checks.append(_check_card(card, config, stated))
    except UserError as error:
        checks.append(
            Check(CARD, False, f'cannot be rebuilt from config.json: {error}')
        )
    return checks


def _check_number(stated: int, configured: int) -> list[Check]:
    if configured == stated:
        return []
    if configured:
        detail = f'{stated}, but config.json says {configured}'
        return [Check('num_examples', False, detail)]
    detail = f'{stated} by privacy.json alone: config.json has none, as they once had'
    return [Check('num_examples', None, detail)]


def _few(texts: list[str]) -> str:
    more = f'; and {len(texts) - 3} more' if len(texts) > 3 else ''
    return '; '.join(texts[:3]) + more


def _differences(stated: Any, fields: Any, path: str) -> Iterator[tuple[str, bool]]:
    """What differs from the rebuilt plan, and whether it is more than a number or word."""
    if isinstance(fields, dict) and isinstance(stated, dict):
        for name in sorted({*fields, *stated}):
            where = f'{path}.{name}'.lstrip('.')
            if name not in stated or name not in fields:
                yield (
                    f'{where} {"is missing" if name in fields else "is unknown"}',
                    True,
                )
            else:
                yield from _differences(stated[name], fields[name], where)
        if stated.keys() == fields.keys() and list(stated) != list(fields):
            yield f'{path or "privacy.json"} has its fields in another order', False
    elif isinstance(fields, list) and isinstance(stated, list):
        if len(fields) != len(stated):
            yield f'{path} has {len(stated)} entries, not {len(fields)}', True
        else:
            for i, (a, b) in enumerate(zip(stated, fields, strict=True)):
                yield from _differences(a, b, f'{path}[{i}]')
    elif not _agree(stated, fields, path.rpartition('.')[2]):
        kinds = [_kind(stated), _kind(fields)]
        text = f'{path} is {str(stated)[:60]!r}, rebuilt {str(fields)[:60]!r}'
        yield text, kinds[0] != kinds[1]


def _kind(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return 'number' if number else type(value).__name__


def _agree(stated: Any, expected: Any, name: str) -> bool:
    if same(stated, expected):
        return True
    numbers = _kind(stated) == _kind(expected) == 'number'
    # The same number written otherwise, -0.0 or 10 for 10.0, is nobody's rounding.
    if name not in COMPUTED or not numbers or stated == expected:
        return False
    return math.isclose(stated, expected, rel_tol=RELATIVE)


def _check_event(stated: dict[str, Any]) -> Check:
    try:
        composed = event_to_json(PrivacyPlan.from_json(stated).dp_event)
    except ValueError as error:
        return Check('dp_event', False, f'the mechanisms do not compose: {error}')
    if not same(stated['dp_event'], composed):
        return Check('dp_event', False, 'is not the composition of the mechanisms')
    names = ', '.join(m['name'] for m in stated['mechanisms']) or 'nothing'
    return Check('dp_event', True, f'the composition of {names}')


def _check_delta(stated: dict[str, Any]) -> list[Check]:
    delta, overflow = stated['delta'], stated['overflow_delta']
    number = stated['num_examples']
    # A run that promises nothing charges nothing for the draws that it cuts.
    charged = stated['mechanisms'] if stated['epsilon'] is not None else []
    found = math.fsum(_overflow(m, number) for m in charged)
    agree = math.isclose(found, overflow, rel_tol=RELATIVE)
    detail = f'{delta:g}, of which overflow {overflow:.6g}, recomputed {found:.6g}'
    checks = [Check('delta', agree and 0 <= overflow <= delta, detail)]
    if delta >= 1 / number:
        detail = f'{delta:g} is not below 1 / num_examples = {1 / number:.3g}'
        certified = stated['epsilon'] is not None
        checks.append(Check('delta', False if certified else None, detail))
    return checks


def _overflow(mechanism: dict[str, Any], number: int) -> float:
    """Chance that in some draw the others leave a record no slot.

    P[Bin(s(N - 1), q) > capacity - s], where s draws share the slots.
    """
    groups, shared_by = mechanism['num_groups'], mechanism.get('shared_by', 1)
    if groups < 1 or shared_by < 1:
        return math.nan
    prob, others = mechanism['sampling_prob'] / groups, shared_by * (number - 1)
    once = stats.binom.sf(mechanism['capacity'] - shared_by, others, prob)
    return float(mechanism['steps'] * groups * once)


def _check_epsilon(
    stated: dict[str, Any],
    config: Config,
    recompute: Callable[[dict[str, Any]], Epsilons],
) -> list[Check]:
    epsilon, by_rdp = stated['epsilon'], stated['epsilon_rdp']
    if epsilon is None:
        return [Check('epsilon', by_rdp is None, 'none is stated')]
    try:
        found = recompute(stated)
    except ValueError as error:
        return [Check('epsilon', False, f'cannot be recomputed: {error}')]
    checks = [
        Check(
            'epsilon by PLD',
            _is_rounded(epsilon, found.pld, config.privacy.epsilon),
            f'{found.pld:.6g}, stated {epsilon}',
        ),
        Check(
            'epsilon by Renyi DP',
            _is_rounded(by_rdp, found.rdp, math.inf),
            f'{found.rdp:.6g}, stated {by_rdp}',
        ),
    ]
    if found.bounds is None:
        detail = 'not computed: delta is too small for float64'
        return [*checks, Check('epsilon independently', None, detail)]
    lower, upper = found.bounds
    detail = f'within {lower:.6g} and {upper:.6g}, stated {epsilon}'
    close = upper <= epsilon * (1 + AGREEMENT) + 1e-4
    # Bounds too wide to confirm what is stated do not refute it.
    agree = (True if close else None) if lower <= epsilon else False
    return [*checks, Check('epsilon independently', agree, detail)]


def _is_rounded(stated: float, found: float, limit: float) -> bool:
    """Whether `stated` is `found`, rounded up to four decimals and not above `limit`."""
    ends = [found * (1 - RELATIVE), found * (1 + RELATIVE)]
    return stated in [min(accounting.round_up(end), limit) for end in ends]


def _check_card(card: str, config: Config, privacy: dict[str, Any]) -> Check:
    plain = model_card(config, privacy)
    card = card.replace(EARLIER_ONE_IMAGE, ONE_IMAGE)
    if bends(config):  # cards until 2026-11-28 did not say it
        card = card.replace(SHOWN, SHOWN_UNBENT)
    if card == plain:
        return Check(CARD, True, 'as config.json and privacy.json have it')
    rest = card[len(plain) :] if card.startswith(plain) else ''
    if config.release.test_set_is_public and re.fullmatch(_figures(config), rest):
        return Check(CARD, True, 'as they have it, and accuracy on a public test set')
    return Check(CARD, False, 'is not the card of config.json and privacy.json')


def _figures(config: Config) -> str:
    """A pattern for the table of test figures: known rows, once, over the config's seeds."""
    names = TABLE_MODELS if config.data.columns else MODELS
    head, row = re.escape(figures_head(config)), rf'\| {FIGURE} \| {FIGURE} \|'
    rows = [rf'(?:\| {name} {row} {config.evaluation.seeds} \|\n)?' for name in names]
    return rf'{head}(?=\|){"".join(rows)}'
