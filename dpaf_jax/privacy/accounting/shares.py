"""How epsilon is shared out among the mechanisms of a run: `config.privacy.budgets`."""

import math
from collections.abc import Sequence

from dpaf_jax.config import PrivacyConfig
from dpaf_jax.runtime.errors import UserError

FIELD = 'config.privacy.budgets'


def shares_of(
    privacy: PrivacyConfig,
    names: Sequence[str],
    present: Sequence[str],
    rest_order: Sequence[str],
) -> dict[str, float | None]:
    """What each mechanism of a run gets of epsilon; None: what is left over.

    Args:
        privacy: its budgets and epsilon are read.
        names: the method's mechanisms in the order of the budgets.
        present: those that the run has.
        rest_order: who takes what is left over, first present first.

    Raises:
        UserError: as from `parse`.
    """
    shares = parse(privacy.budgets, names, privacy.epsilon, present)
    return _with_rest(shares, present, rest_order, privacy.epsilon)


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


def smaller(epsilon: float) -> list[float]:
    """Epsilons of one digit below, down to a thousandth of it, the largest first."""
    power = math.floor(math.log10(epsilon))
    made = (
        float(f'{digit}e{exponent}')
        for exponent in range(power, power - 4, -1)
        for digit in (7, 5, 3, 2, 1)
    )
    return [each for each in made if each < epsilon]
