"""How often do the attacks find something where there is nothing?

    python -m experiments.attack_nulls --workdir=runs/mnist

Three worlds without a leak, from a finished run's release and its training images alone.
`own training set`: the release's own training images, parted at random into 'training' and
'held-out'. `perfect generator`: as before, and the synthetic images are other training
images. `no information`: synthetic images are noise, scores are random numbers.

Prints, for 64, 128 and 1000 images a side, the share of runs in which each attack is right,
which the verdicts promise for 95 % of them: memorisation and membership find nothing, and all
intervals of membership's table hold the truth. Beside it what is not used, a binomial
interval over the synthetic images, which takes the real ones for given.

Distances are computed once, so that runs are many. The scores are GAN-Leaks' two and the
count of synthetic images in a ball, by pixels. LOGAN's discriminator, which would be
trained anew in each run, is left out.
"""

import pathlib
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import flags
from scipy import stats
from sklearn.metrics import euclidean_distances

from dpaf_jax.attack import membership, memorisation
from dpaf_jax.attack.distances import Nearest, flatten
from dpaf_jax.attack.permutation import ALARM, Findings
from dpaf_jax.attack.roc import Roc, measurable
from dpaf_jax.runtime.command import fail, parse, start

SIDES = 64, 128, 1000  # real images on either side, and in the reference
REAL, SYNTHETIC = 4000, 500
NULLS = 'own training set', 'perfect generator', 'no information'

_WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Folder of a finished run.', allow_override=True
)
_RUNS = flags.DEFINE_integer('runs_of_each', 400, 'Of each kind.', lower_bound=1)


class World(NamedTuple):
    """Distances of images among which nothing can be found.

    Attributes:
        made: [m, n] of synthetic to real images.
        real: [n, n] between real images.
        informs: whether scores are made of them, not of random numbers.
    """

    made: np.ndarray
    real: np.ndarray
    informs: bool


class Right(NamedTuple):
    """What was right in one run."""

    memorisation: bool
    binomial: bool
    membership: bool
    intervals: bool


def worlds(
    real: np.ndarray, others: np.ndarray, synthetic: np.ndarray, seed: int = 0
) -> dict[str, World]:
    """One for each of `NULLS`.

    Args:
        real: [n, d] in [0, 1], records that a generator was trained on.
        others: [m, d] of the same population.
        synthetic: [m, d], the generator's.
        seed: of the noise.
    """
    noise = np.random.default_rng(seed).uniform(size=others.shape).astype(np.float32)
    between = euclidean_distances(real)
    return {
        null: World(euclidean_distances(made, real), between, made is not noise)
        for null, made in zip(NULLS, (synthetic, others, noise), strict=True)
    }


def attack(world: World, side: int, rng: np.random.Generator) -> Right:
    """Both attacks on a random parting into members, others and a reference."""
    drawn = rng.choice(len(world.real), 3 * side, replace=False)
    chosen, reference = drawn[: 2 * side], drawn[2 * side :]
    made = world.made[:, chosen]
    hits = Nearest(made.min(axis=1), made.argmin(axis=1))
    copied = memorisation.look(hits, np.arange(2 * side) < side, 'images')
    usual = world.real[np.ix_(reference, chosen)].min(axis=0)
    curves = {
        name: Roc(values[:side], values[side:])
        for name, values in scores(world, made, usual, rng).items()
    }
    return Right(
        not copied.found,
        binomial_holds(copied, len(made)),
        not membership.look(curves, 'images').found,
        intervals_hold(curves),
    )


def scores(
    world: World, made: np.ndarray, usual: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Of each record, larger for members; some of them with many ties."""
    if not world.informs:
        number = len(usual)
        return {'random': rng.normal(size=number), 'tied': rng.poisson(1, number)}
    least = made.min(axis=0)
    return {
        'gan-leaks': -least,
        'gan-leaks calibrated': usual - least,
        'monte-carlo': np.sum(made <= np.median(least), axis=0),
    }


def binomial_holds(found: Findings, synthetic: int) -> bool:
    """Whether 0.5 lies in the interval that takes synthetic images for independent."""
    share = found.looks[f'all {synthetic} synthetic images'].value
    count = round(share * synthetic)
    ends = stats.binomtest(count, synthetic).proportion_ci(1 - ALARM)
    return bool(ends.low <= 0.5 <= ends.high)


def intervals_hold(curves: dict[str, Roc]) -> bool:
    """Whether every AUC's interval holds 0.5, and no TPR is surely above its FPR."""
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


def right(world: World, side: int, runs: int) -> np.ndarray:
    """[runs, 4] bool, what was right in each run, in the order of `Right`."""
    seeds = np.random.SeedSequence(side).spawn(runs)
    return np.array([attack(world, side, np.random.default_rng(s)) for s in seeds])


def main(argv: Sequence[str]) -> None:
    """The command."""
    if _WORKDIR.value is None:
        fail('give --workdir=<folder>; see python -m experiments.attack_nulls --help')
    # Imported late, so that --help answers at once.
    from dpaf_jax.attack.target import open_target

    began = time.monotonic()
    target = open_target(pathlib.Path(_WORKDIR.value))
    order = np.random.default_rng(0).permutation(len(target.members))
    real = flatten(target.members[np.sort(order[:REAL])])
    others = flatten(target.members[np.sort(order[REAL : REAL + SYNTHETIC])])
    made = worlds(real, others, flatten(target.synthetic[:SYNTHETIC]))
    heads = 'memorisation', 'binomial (not used)', 'membership', 'its intervals'
    print('| nothing to find: | a side |', ' | '.join(heads), '|')
    print('|---|---|---|---|---|---|')
    for null, world in made.items():
        for side in SIDES:
            shares = right(world, side, _RUNS.value).mean(axis=0)
            cells = ' | '.join(f'{100 * share:.1f} %' for share in shares)
            print(f'| {null} | {side} | {cells} |', flush=True)
    print(f'{_RUNS.value} runs each, {time.monotonic() - began:.0f} s')


if __name__ == '__main__':
    start(main, parse)
