"""How often do the attacks find something where there is nothing?

    python -m experiments.attack_nulls --workdir=runs/mnist

Three worlds without a leak, from a finished run's release and its training images alone.
`own training set`: the release's own training images, parted at random into 'training' and
'held-out'. `perfect generator`: as before, and the synthetic images are other training
images. `no information`: synthetic images are noise, scores are random numbers.

Prints, for 64, 128 and 1000 images a side, the share of runs in which each attack is right,
which the verdicts promise for 95 % of them: memorisation and membership find nothing, and all
intervals of membership's table hold the truth. Beside it what is not used, a binomial
interval over the synthetic images, which takes the real ones for given. LOGAN's
discriminator is left out, for it is trained anew in each run; random scores, some
with many ties, stand for it.
"""

import dataclasses
import pathlib
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import app, flags
from scipy import stats

from dpaf_jax.attack import membership, memorisation
from dpaf_jax.attack.permutation import ALARM, Findings
from dpaf_jax.attack.roc import Roc, measurable
from dpaf_jax.attack.scores import gan_leaks, monte_carlo
from dpaf_jax.attack.target import Target, open_target
from dpaf_jax.runtime.command import fail, parse

SIDES = 64, 128, 1000  # images on either side
SYNTHETIC = 1000
NULLS = 'own training set', 'perfect generator', 'no information'

_WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Folder of a finished run.', allow_override=True
)
_RUNS = flags.DEFINE_integer('runs', 400, 'Of each kind.', lower_bound=1)


class Right(NamedTuple):
    """What was right in one run."""

    memorisation: bool
    binomial: bool
    membership: bool
    intervals: bool


def world(target: Target, null: str, side: int, rng: np.random.Generator) -> Target:
    """A target in which nothing can be found.

    Args:
        target: a real one; its held-out images are not looked at.
        null: one of `NULLS`.
        side: training images, and scored held-out ones; the reference is as large.
        rng: for the parting.
    """
    number = 3 * side + SYNTHETIC
    chosen = rng.choice(len(target.members), number, replace=False)
    real = target.members[np.sort(chosen)][rng.permutation(number)]
    members, others, rest = np.split(real, [side, 3 * side])
    synthetic = target.synthetic[:SYNTHETIC]
    if null == 'perfect generator':
        synthetic = rest
    elif null == 'no information':
        synthetic = rng.integers(256, size=rest.shape, dtype=np.uint8)
    return dataclasses.replace(
        target, members=members, non_members=others, synthetic=synthetic
    )


def attack(null: str, target: Target, rng: np.random.Generator) -> Right:
    """Both attacks, as the command makes them."""
    # As many real images on either side, as a binomial interval needs.
    even = dataclasses.replace(
        target, non_members=target.non_members[: len(target.members)]
    )
    copied = memorisation.attack(even).findings
    if null == 'no information':
        sides = len(target.members)
        curves = {
            'random': Roc(rng.normal(size=sides), rng.normal(size=sides)),
            'tied': Roc(rng.poisson(1, sides), rng.poisson(1, sides)),
        }
    else:
        curves = membership.attack(target, (gan_leaks, monte_carlo))
    told = membership.look(curves, target.records)
    return Right(
        not copied.found,
        binomial_holds(copied, len(target.synthetic)),
        not told.found,
        intervals_hold(curves),
    )


def binomial_holds(found: Findings, synthetic: int) -> bool:
    """Whether 0.5 lies in the interval that takes synthetic images for independent."""
    share = found.looks[f'all {synthetic} synthetic images'].value
    count = round(share * synthetic)
    ends = stats.binomtest(count, synthetic).proportion_ci(1 - ALARM)
    return bool(ends.low <= 0.5 <= ends.high)


def intervals_hold(curves: dict[str, Roc]) -> bool:
    """Whether every AUC's interval holds 0.5, and no two rates are surely different."""
    points = measurable(len(next(iter(curves.values())).non_members))
    alpha = ALARM / (len(curves) * (1 + 2 * len(points)))
    for roc in curves.values():
        auc = roc.auc(alpha)
        if not auc.low <= 0.5 <= auc.high:
            return False
        for count in points.values():
            fpr, tpr = roc.point(count, alpha)
            if tpr.low > fpr.high:
                return False
    return True


def shares(target: Target, null: str, side: int, runs: int) -> list[float]:
    """In how many of the runs each was right, in the order of `Right`."""
    made = []
    for seed in range(runs):
        rng = np.random.default_rng([seed, side, NULLS.index(null)])
        made.append(attack(null, world(target, null, side, rng), rng))
    return [float(share) for share in np.mean(made, axis=0)]


def main(argv: Sequence[str]) -> None:
    """The command."""
    if len(argv) > 1 or _WORKDIR.value is None:
        fail('give --workdir=<folder>; see python -m experiments.attack_nulls --help')
    target = open_target(pathlib.Path(_WORKDIR.value))
    heads = 'memorisation', 'binomial (not used)', 'membership', 'its intervals'
    print('| nothing to find: | a side |', ' | '.join(heads), '|')
    print('|---|---|---|---|---|---|')
    start = time.monotonic()
    for null in NULLS:
        for side in SIDES:
            made = shares(target, null, side, _RUNS.value)
            cells = ' | '.join(f'{100 * share:.1f} %' for share in made)
            print(f'| {null} | {side} | {cells} |', flush=True)
    print(f'{_RUNS.value} runs each, {time.monotonic() - start:.0f} s')


if __name__ == '__main__':
    app.run(main, flags_parser=parse)
