"""Where there is nothing to find, the attacks find nothing in 95 % of all runs.

Three worlds: sides parted at random from a generator's own training set, a perfect
generator, and no information. On distances and scores, so that runs are many.
"""

import functools

import numpy as np
import pytest
from scipy import stats

from dpaf_jax.attack import membership, memorisation, permutation
from dpaf_jax.attack.permutation import permutation_test
from dpaf_jax.attack.target import Target
from experiments import attack_nulls
from experiments.attack_nulls import NULLS, SIDES, Right

RUNS = {64: 80, 128: 60, 1000: 30}
FAST = [*((null, 64) for null in NULLS), ('own training set', 1000)]


@pytest.fixture(autouse=True)
def few_permutations(monkeypatch):
    """As exact, only coarser: p-values are multiples of 1/100."""
    monkeypatch.setattr(permutation, 'PERMUTATIONS', 99)


def population(number, rng, dimensions=16):
    """Dense and thin places, as in data: some records are near to many others."""
    width = rng.gamma(1.0, size=(number, 1))
    values = 0.5 + 0.1 * width * rng.normal(size=(number, dimensions))
    return np.clip(values, 0, 1).astype(np.float32)


@functools.cache
def worlds():
    rng = np.random.default_rng(0)
    real, others = np.split(population(3400, rng), [3100])
    # A generator that has learnt its training set by heart.
    copies = real[rng.integers(len(real), size=300)]
    return attack_nulls.worlds(real, others, copies + 0.01)


def promised(right):
    """Whether so many could be right if each is with a chance of 94 %."""
    count = int(np.sum(right))
    return stats.binomtest(count, len(right), 0.94, 'less').pvalue > 0.01


@pytest.mark.parametrize(
    ('null', 'side'),
    [
        pytest.param(null, side, marks=[pytest.mark.slow] * ((null, side) not in FAST))
        for null in NULLS
        for side in RUNS
    ],
)
def test_nothing_is_found_and_intervals_hold(null, side):
    made = Right(*attack_nulls.right(worlds()[null], side, RUNS[side]).T)
    assert promised(made.memorisation)
    assert promised(made.membership)
    assert promised(made.intervals)
    if side == 64:  # the interval that takes the real records for given
        assert not promised(made.binomial)


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
@pytest.mark.parametrize('copies', [True, False])
def test_whole_attacks_find_nothing(tmp_path, copies, side):
    rng = np.random.default_rng(0)
    real = (255 * population(4000, rng, 64)).astype(np.uint8).reshape(-1, 8, 8, 1)
    other = (255 * population(500, rng, 64)).astype(np.uint8).reshape(-1, 8, 8, 1)
    synthetic = real[:500] ^ 1 if copies else other
    privacy = {'guarantee': 'certified', 'epsilon': 1.0, 'delta': 1e-5}
    copied, told = [], []
    for _ in range(40):
        members, others = np.split(rng.permutation(real)[: 3 * side], [side])
        target = Target(
            synthetic, members, np.zeros(side, np.int32), others, privacy, tmp_path
        )
        copied.append(not memorisation.attack(target).findings.found)
        told.append(not membership.run(target)['found'])
    assert promised(copied) and promised(told)
