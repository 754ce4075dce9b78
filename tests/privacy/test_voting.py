"""Votes: one teacher moves a query by at most what the plan says; noise; Confident-GNMax."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, SelfComposedDpEvent

from dpaf_jax.privacy import accounting, voting
from dpaf_jax.privacy.grid import Grid
from dpaf_jax.runtime import parallel
from dpaf_jax.verify.accountant import gaussian_epsilon

DEVICES = [pytest.param(1, marks=pytest.mark.slow), 8]
TEACHERS, QUERIES, BINS = 16, (3, 2), 5


def ballots(votes, noise_std, ratio, keys, number=1, count=voting.count):
    """[R, ...] ballots as float64: of votes [n, ...] dealt to devices, for many keys."""
    fn = compiled(noise_std, ratio, number, count)
    placed = np.broadcast_to(keys, (number, *keys.shape))
    made = parallel.unreplicate(fn(parallel.deal(votes, number, 0, 0), placed))
    return voting.Ballot(*(np.asarray(part, np.float64) for part in made))


@functools.cache
def compiled(noise_std, ratio, number, count):
    grid = Grid.of(1.0, ratio * noise_std)

    def release(votes, keys):
        counted = count(votes, BINS, grid)

        def once(key):
            return voting.release(counted, key, noise_std, ratio)

        return jax.vmap(once)(keys)

    return parallel.pmapped(release, jax.local_devices()[:number])


def one_key(number=1):
    return np.arange(8 * number, dtype=np.uint32).reshape(number, 8)


def vector(votes, ratio=3.0, **more):
    """A query's exact output, as the proof has it: no noise, the height over the ratio."""
    ballot = ballots(votes, 2.0**-30, ratio, one_key(), **more)
    return np.concatenate([ballot.histogram.ravel(), ballot.highest.ravel() / ratio])


def random_votes(seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(BINS, size=(TEACHERS, *QUERIES), dtype=np.int32)


# --- bins -----------------------------------------------------------------------------


def test_every_value_gets_a_bin_of_equal_width():
    values = jnp.array([-9.0, -1, -0.51, -0.49, -0.01, 0.01, 0.49, 0.51, 1, 9]) * 1e-4
    places = voting.discretise(values, 1e-4, 4)
    np.testing.assert_array_equal(places, [0, 0, 0, 1, 1, 2, 2, 3, 3, 3])
    np.testing.assert_allclose(
        voting.midpoint(jnp.arange(4), 4), [-0.75, -0.25, 0.25, 0.75]
    )


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf, 3e38])
def test_a_value_that_is_no_number_is_still_one_vote(bad):
    place = voting.discretise(jnp.float32(bad), 1e-30, BINS)
    assert 0 <= int(place) < BINS
    counted = np.asarray(voting.count(place[None], BINS, None))
    assert counted.sum() == 1


# --- sensitivity ----------------------------------------------------------------------


def moves(number=1, ratio=3.0, count=voting.count):
    """How far the vector of all queries moves, when one teacher votes anew."""
    far, rng = [], np.random.default_rng(1)
    for seed in range(4):
        votes = random_votes(seed)
        votes[:, 0] = seed  # all agree: the highest bin moves by 1
        whole = vector(votes, ratio, number=number, count=count)
        for teacher in rng.choice(TEACHERS, 4, replace=False):
            other = votes.copy()
            other[teacher] = (votes[teacher] + 1 + seed) % BINS
            rest = vector(other, ratio, number=number, count=count)
            far.append(np.linalg.norm(whole - rest))
    return np.array(far)


@pytest.mark.parametrize('number', DEVICES)
@pytest.mark.parametrize('ratio', [0.5, 3.0])
def test_one_teacher_moves_all_queries_by_at_most_the_sensitivity(number, ratio):
    bound = voting.sensitivity(ratio) * math.sqrt(math.prod(QUERIES))
    far = moves(number, ratio)
    assert far.max() <= bound
    lower = math.sqrt(6 * 2 + 2 / ratio**2)  # two queries lose from their highest bin
    assert far.max() >= lower * (1 - 1e-6)


def test_a_teacher_with_two_votes_is_found_out():
    def twice(votes, bins, grid):
        return voting.count(jnp.concatenate([votes, votes[:1]]), bins, grid)

    bound = voting.sensitivity(3.0) * math.sqrt(math.prod(QUERIES))
    votes = random_votes()
    other = votes.copy()
    other[0] = (votes[0] + 1) % BINS
    far = np.linalg.norm(vector(votes, count=twice) - vector(other, count=twice))
    assert far > bound


@pytest.mark.parametrize('number', DEVICES)
def test_histograms_are_exact_and_count_every_vote_once(number):
    votes = random_votes()
    ballot = ballots(votes, 2.0**-30, 3.0, one_key(), number)
    expected = np.stack([np.sum(votes == b, axis=0) for b in range(BINS)], axis=-1)
    np.testing.assert_allclose(ballot.histogram[0], expected, atol=1e-6)
    np.testing.assert_allclose(ballot.highest[0], expected.max(axis=-1), atol=1e-6)


# --- noise and cost -------------------------------------------------------------------


@pytest.mark.parametrize('number', DEVICES)
def test_bins_and_height_get_noise_of_their_own(number):
    votes, std, ratio, repeats = random_votes(), 7.0, 3.0, 3000
    ballot = ballots(votes, std, ratio, one_key(repeats), number)
    exact = ballots(votes, 2.0**-30, ratio, one_key())
    bins = (ballot.histogram - exact.histogram) / std
    height = (ballot.highest - exact.highest) / (ratio * std)
    assert np.std(bins) == pytest.approx(1, abs=4 / math.sqrt(2 * bins.size))
    assert np.std(height) == pytest.approx(1, abs=4 / math.sqrt(2 * height.size))
    # The noise of a height is not that of any bin.
    correlations = np.mean(bins * height[..., None], axis=0)
    assert np.abs(correlations).max() < 6 / math.sqrt(repeats)


@pytest.mark.parametrize('number', DEVICES)
def test_answers_that_are_numbers_are_summed_exactly_and_noised_once(number):
    answers = random_votes().astype(np.float32) % 3 - 1  # signs
    exact, std = answers.sum(axis=0), 3.0

    def release(mine, keys):
        return jax.vmap(lambda key: voting.noisy_sum(mine, key, std))(keys)

    keys = np.arange(2000 * 8, dtype=np.uint32).reshape(2000, 8)
    fn = parallel.pmapped(release, jax.local_devices()[:number])
    placed = np.broadcast_to(keys, (number, *keys.shape))
    noise = (
        parallel.unreplicate(fn(parallel.deal(answers, number, 0, 0), placed)) - exact
    )
    assert abs(noise.mean()) < 0.1  # 3.6 standard errors
    assert 0.97 * std < noise.std() < 1.03 * std

    silent = parallel.pmapped(
        lambda mine, key: voting.noisy_sum(mine, key, 2.0**-30),
        jax.local_devices()[:number],
    )
    made = silent(parallel.deal(answers, number, 0, 0), one_key(number))
    np.testing.assert_allclose(parallel.first(made), exact, atol=1e-6)


def test_an_answer_beyond_a_vote_counts_as_one():
    """Also where noise is long, and the grid would have room for more."""
    fn = parallel.pmapped(
        lambda answers, key: voting.noisy_sum(answers, key, 3.0),
        jax.local_devices()[:1],
    )
    answers = (random_votes().astype(np.float32) % 3 - 1)[None]
    loud, plain = (fn(each, one_key()) for each in (5 * answers, answers))
    np.testing.assert_array_equal(loud, plain)


@pytest.mark.parametrize(('sigma1', 'sigma2'), [(3000.0, 1000.0), (600.0, 100.0)])
def test_the_cost_is_that_of_the_two_checks(sigma1, sigma2):
    ratio = sigma1 / sigma2
    joint = GaussianDpEvent(sigma2 / voting.sensitivity(ratio))
    apart = ComposedDpEvent(
        [GaussianDpEvent(sigma1), GaussianDpEvent(sigma2 / math.sqrt(2))]
    )
    one, two = (
        accounting.rdp_accountant().compose(SelfComposedDpEvent(event, 20_000))
        for event in (joint, apart)
    )
    np.testing.assert_allclose(one._rdp, two._rdp, rtol=1e-9)
    orders = np.array(accounting.ORDERS)
    printed = orders / (2 * sigma1**2) + orders / sigma2**2
    np.testing.assert_allclose(one._rdp, 20_000 * printed, rtol=1e-9)


@pytest.mark.parametrize(
    ('sigma1', 'sigma2', 'epsilon', 'fakes'),
    [(3000.0, 1000.0, 1.0, 3403), (600.0, 100.0, 10.0, 1973)],
)
def test_what_the_published_noises_afford(sigma1, sigma2, epsilon, fakes):
    multiplier = sigma2 / voting.sensitivity(sigma1 / sigma2)
    spent = [
        gaussian_epsilon(math.sqrt(10 * number) / multiplier, 1e-5)
        for number in (fakes, fakes + 1)
    ]
    assert spent[0] <= epsilon < spent[1]


# --- Confident-GNMax ------------------------------------------------------------------


def test_the_winner_counts_where_enough_teachers_agree():
    histogram = jnp.array([[1.0, 7, 2, 0], [4, 3, 3, 0], [0, 0, 0, 10]])
    ballot = voting.Ballot(histogram, jnp.max(histogram, axis=1))
    values, passed = voting.confident_gnmax(ballot, 5.0)
    np.testing.assert_array_equal(passed, [True, False, True])
    np.testing.assert_allclose(values, [-0.25, 0.0, 0.75])
