"""Where there is nothing to find, the attacks find nothing in 95 % of all runs.

Three worlds: sides parted at random from a generator's own training set, a perfect
generator, and no information. On distances and scores, so that runs are many.
"""

import functools

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import euclidean_distances

from dpaf_jax.attack import membership, memorisation, permutation
from dpaf_jax.attack.distances import Nearest
from dpaf_jax.attack.permutation import permutation_test
from dpaf_jax.attack.roc import Roc
from dpaf_jax.attack.target import Target
from experiments.attack_nulls import NULLS, binomial_holds, intervals_hold, shares

SIDES = 64, 128, 1000  # real records on either side
POOL, SYNTHETIC = 3000, 300
RUNS = {64: 150, 128: 150, 1000: 60}


@pytest.fixture(autouse=True)
def few_permutations(monkeypatch):
    """As exact, only coarser: p-values are multiples of 1/100."""
    monkeypatch.setattr(permutation, 'PERMUTATIONS', 99)


def population(number, rng, dimensions=16):
    """Dense and thin places, as in data: some records are near to many others."""
    width = rng.gamma(1.0, size=(number, 1))
    return (width * rng.normal(size=(number, dimensions))).astype(np.float32)


@functools.cache
def distances(null):
    """[SYNTHETIC, POOL] between synthetic and real records."""
    rng = np.random.default_rng(0)
    real = population(POOL, rng)
    if null == 'own training set':  # a generator that has learnt them by heart
        copied = real[rng.integers(POOL, size=SYNTHETIC)]
        made = copied + 0.1 * rng.normal(size=copied.shape)
    elif null == 'perfect generator':
        made = population(SYNTHETIC, rng)
    else:
        made = rng.uniform(-2, 2, (SYNTHETIC, real.shape[1]))
    return euclidean_distances(made, real)


def promised(right):
    """Whether so many could be right if each is with a chance of 94 %."""
    return stats.binomtest(sum(right), len(right), 0.94, 'less').pvalue > 0.01


@pytest.mark.parametrize('side', SIDES)
@pytest.mark.parametrize('null', NULLS)
def test_memorisation_finds_nothing(null, side):
    apart, right, binomial = distances(null), [], []
    for seed in range(RUNS[side]):
        rng = np.random.default_rng(seed)
        chosen = rng.choice(POOL, 2 * side, replace=False)
        some = apart[:, chosen]
        hits = Nearest(some.min(axis=1), some.argmin(axis=1))
        found = memorisation.look(hits, rng.permutation(2 * side) < side, 'images')
        right.append(not found.found)
        binomial.append(binomial_holds(found, SYNTHETIC))
    assert promised(right)
    if side == 64:  # the interval that takes the real records for given
        assert not promised(binomial)


def scores(null, chosen, rng):
    """Some of an attack's, and some of nobody's; some with many ties."""
    number = len(chosen)
    if null == 'no information':
        return {'random': rng.normal(size=number), 'tied': rng.poisson(1, number)}
    apart = distances(null)[:, chosen]
    near = np.sum(apart < np.median(apart.min(axis=0)), axis=0)
    return {'gan-leaks': -apart.min(axis=0), 'monte-carlo': near}


@pytest.mark.parametrize('side', SIDES)
@pytest.mark.parametrize('null', NULLS)
def test_membership_finds_nothing_and_its_intervals_hold(null, side):
    right, intervals = [], []
    for seed in range(RUNS[side]):
        rng = np.random.default_rng(seed)
        chosen = rng.choice(POOL, 2 * side, replace=False)
        curves = {
            name: Roc(values[:side], values[side:])
            for name, values in scores(null, chosen, rng).items()
        }
        right.append(not membership.look(curves, 'images').found)
        intervals.append(intervals_hold(curves))
    assert promised(right)
    assert promised(intervals)


def test_a_find_is_as_rare_as_stated_and_no_rarer():
    # Of continuous scores, nearly 5 %: the test does not hide behind caution.
    found = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        weights = {'one': rng.normal(size=40), 'two': rng.normal(size=40)}
        found += permutation_test(weights, np.arange(40) < 10, seed).found
    assert 30 < found < 73  # 50 and three standard errors


def test_the_limit_is_where_a_find_begins():
    rng = np.random.default_rng(0)
    is_training = np.arange(60) < 30
    for shift in np.linspace(0, 2, 40):
        weights = {
            'one': rng.normal(size=60) + shift * is_training,
            'two': rng.poisson(1, 60).astype(float),
            'flat': np.full(60, 0.1),
        }
        made = permutation_test(weights, is_training)
        beyond = [look.value > look.limit + 1e-9 for look in made.looks.values()]
        assert made.found == any(beyond)
        assert made.looks['flat'].z == 0


def test_expectation_and_spread_are_those_of_chance():
    rng = np.random.default_rng(1)
    weights, is_training = rng.gamma(1, size=50), np.arange(50) < 15
    look = permutation_test({'one': weights}, is_training).looks['one']
    drawn = [weights @ rng.permutation(is_training) for _ in range(4000)]
    assert look.expected == pytest.approx(np.mean(drawn), rel=0.01)
    spread = (look.value - look.expected) / look.z
    assert spread == pytest.approx(np.std(drawn), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize('side', SIDES)
@pytest.mark.parametrize('null', NULLS)
def test_whole_attacks_find_nothing(tmp_path, monkeypatch, null, side):
    monkeypatch.setattr(permutation, 'PERMUTATIONS', 1999)
    rng = np.random.default_rng(0)
    values = 128 + 40 * population(6000, rng, 64)
    images = np.clip(values, 0, 255).astype(np.uint8).reshape(-1, 8, 8, 1)
    real, synthetic = images[:4500], images[:1500] ^ 1  # copies of some
    privacy = {'guarantee': 'certified', 'epsilon': 1.0, 'delta': 1e-5}
    labels = np.zeros(len(real), np.int32)
    target = Target(synthetic, real, labels, real[:0], privacy, tmp_path)
    copied, _, told, intervals = shares(target, null, side, 200)
    for share in (copied, told, intervals):
        assert stats.binomtest(round(200 * share), 200, 0.94, 'less').pvalue > 0.01
