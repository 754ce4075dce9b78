"""Checks that share one chance of a false alarm, and what they find."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dpaf_jax.runtime.parallel import ReplicasDiffer

CONFIDENCE = 0.999  # of all checks of a run together

# What kinds of check there are; the first three give a lower bound on epsilon.
KINDS = {
    'epsilon': 'error rates of an attack on many repetitions',
    'epsilon (Gaussian)': 'the same errors, held against a Gaussian trade-off',
    'epsilon (one run)': 'guesses about many canaries in one release',
    'sensitivity': 'how far one record moves the exact sum',
    'noise level': 'standard deviation of the noise',
    'noise by coordinate': 'standard deviation of the noise of each coordinate',
    'repeated noise': 'coordinates with the same noise, on one device or several',
    'noise law': 'shape of the noise',
    'noise independence': 'correlation between coordinates, steps and purposes',
    'noise keys': 'no key twice, nor under two entropies',
    'steps': 'how many a whole run makes, and how many may see one record',
    'parts': 'no record with two teachers, or two critics',
    'inclusion': 'who is drawn, how often, and together with what',
}
POWERLESS = 'it can refute nothing'


class NotFinite(ArithmeticError):
    """A sum that no clip can have bounded; the message says which."""


class Outcome(NamedTuple):
    """What a check has found; attributes as of a `Finding`."""

    passed: bool
    measured: float
    claimed: float
    detail: str
    has_power: bool = True


def of_bound(bound: float, most: float, claimed: float, detail: str) -> Outcome:
    """The outcome of an attack.

    Args:
        bound: the lower bound on epsilon that it has shown.
        most: what it could have shown, had every guess been right.
        claimed: epsilon.
        detail: who 'can show 1.23 at most', for people.
    """
    has_power = most > claimed
    detail += f' can show {most:.2f} at most'
    if not has_power:
        detail += f', below the claim: {POWERLESS}'
    return Outcome(bound <= claimed, bound, claimed, detail, has_power)


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        mechanism: of the plan; 'release' for the released generator.
        kind: one of `KINDS`.
        case: what distinguishes checks of a kind: devices, draw, pair of mechanisms.
        passed: False for a violation: what was claimed is refuted.
        measured: a lower bound on epsilon, a ratio to what the plan says, a p-value.
        claimed: what it is held against: the claimed epsilon, 1, the level of the check.
        detail: for people.
        has_power: whether it could have found a violation; False for too few repetitions.
    """

    mechanism: str
    kind: str
    case: str
    passed: bool
    measured: float
    claimed: float
    detail: str = ''
    has_power: bool = True

    def to_json(self) -> dict[str, Any]:
        """As it stands in audit.json."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Check:
    """A check that is still to be made.

    Attributes:
        mechanism, kind, case: of the finding.
        run: alpha, the chance that the check may alarm for nothing, to its outcome.
    """

    mechanism: str
    kind: str
    case: str
    run: Callable[[float], Outcome]

    @classmethod
    def of(
        cls,
        mechanism: str,
        kind: str,
        case: str,
        run: Callable[..., Outcome],
        *args: Any,
    ) -> 'Check':
        """One whose `run` takes these arguments in front of alpha."""
        return cls(mechanism, kind, case, functools.partial(run, *args))


def run_checks(
    checks: Sequence[Check], on_check: Callable[[Check], None] = lambda check: None
) -> list[Finding]:
    """Makes all checks, each at its equal share of 1 - CONFIDENCE (Bonferroni).

    So with probability CONFIDENCE at least none of them alarms where all that is claimed
    is true, and all bounds hold together. What no certified code can do, replicas that
    differ and sums that are not finite, is a violation in each check that meets it.
    """
    findings = []
    for check in checks:
        on_check(check)
        try:
            made = check.run(alpha_of(checks))
        except (ReplicasDiffer, NotFinite) as error:
            made = Outcome(False, 0.0, 1.0, str(error))
        findings.append(Finding(check.mechanism, check.kind, check.case, *made))
    return findings


def alpha_of(checks: Sequence[Check]) -> float:
    """The share of each."""
    return (1 - CONFIDENCE) / len(checks)
