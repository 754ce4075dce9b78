"""Contracts of the sampler: independent coins, one draw per mechanism and step."""

import dataclasses

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.privacy.sampling import (
    Draw,
    binomial,
    packed,
    poisson_draw,
    shuffled_batches,
)

N, PROB, STEPS = 60, 0.1, 4000
DOUBT = 1e-6  # a fixed entropy makes every test repeatable; this keeps it fair
KEYS = tiny.keys()
MECHANISM = Mechanism(
    name='dpagg',
    kind='',
    sampling_prob=PROB,
    l2_sensitivity=1.0,
    steps=STEPS,
    expected_batch_size=N * PROB,
    capacity=N,
)


def taken(draw):
    """The indices that take part, in the order of the draw."""
    return draw.indices[~draw.is_padding_example]


def history(mechanism, eligible=N, steps=STEPS):
    """[steps, N] bool: who took part when."""
    who = np.zeros((steps, N), bool)
    for step in range(steps):
        who[step, taken(poisson_draw(mechanism, eligible, KEYS, step))] = True
    return who


@pytest.fixture(scope='module')
def who():
    return history(MECHANISM)


def is_binomial(counts, trials, prob):
    """Whether each count is one that Bin(trials, prob) gives."""
    doubt = DOUBT / np.size(counts)
    low, high = stats.binom.ppf([doubt / 2, 1 - doubt / 2], trials, prob)
    return bool(np.all((low <= counts) & (counts <= high)))


def test_every_record_is_included_with_the_sampling_probability(who):
    counts = who.sum(axis=0)
    assert is_binomial(counts, STEPS, PROB)
    assert not is_binomial(counts, STEPS, PROB * 1.2)
    assert not is_binomial(counts, STEPS, PROB / 1.2)
    # Not too even either, as a shuffle would be.
    spread = np.sum((counts - STEPS * PROB) ** 2) / (STEPS * PROB * (1 - PROB))
    assert stats.chi2.ppf(DOUBT, N) < spread < stats.chi2.isf(DOUBT, N)


def test_records_are_included_independently_of_each_other(who):
    together = who.T.astype(int) @ who.astype(int)
    pairs = together[np.triu_indices(N, 1)]
    assert is_binomial(pairs, STEPS, PROB**2)


def test_steps_are_independent_of_each_other(who):
    assert is_binomial((who[1:] & who[:-1]).sum(axis=0), STEPS - 1, PROB**2)


def test_sizes_of_draws_are_binomial(who):
    sizes = who.sum(axis=1)
    for value in range(3, 10):
        prob = stats.binom.pmf(value, N, PROB)
        assert is_binomial(np.sum(sizes == value), STEPS, prob)
    assert sizes.var() == pytest.approx(N * PROB * (1 - PROB), rel=0.1)


class Told(np.random.Generator):
    """A uniform number that is told, once; whoever asks for more is told 0."""

    def __init__(self, uniform):
        super().__init__(np.random.PCG64(0))
        self._left = [uniform]

    def random(self):
        return self._left.pop() if self._left else 0.0


@pytest.mark.parametrize(
    ('count', 'prob'), [(60_000, 3 / 60_000), (50, 0.5), (7, 0.999)]
)
def test_no_count_is_missing_far_out(count, prob):
    """NumPy has none above ten standard deviations, and draws again."""
    uniform = 1 - 1.5e-13
    size = binomial(Told(uniform), count, prob)
    assert stats.binom.cdf(size - 1, count, prob) < uniform
    assert uniform <= stats.binom.cdf(size, count, prob)


@pytest.mark.parametrize(
    ('count', 'prob'), [(0, 0.5), (9, 0.0), (9, 1.0), (10**7, 1.0)]
)
def test_counts_without_a_choice(count, prob):
    for uniform in (0.0, 0.5, 1 - 2**-53):
        assert binomial(Told(uniform), count, prob) == count * prob


def test_mechanisms_draw_independently(who):
    other = history(dataclasses.replace(MECHANISM, name='conv2'), steps=1000)
    assert is_binomial((who[:1000] & other).sum(axis=0), 1000, PROB**2)


def test_the_same_keys_repeat_a_draw_and_others_do_not():
    def indices(keys, step=0):
        return taken(poisson_draw(MECHANISM, N, keys, step)).tolist()

    assert indices(KEYS) == indices(tiny.keys())
    assert indices(KEYS) != indices(KEYS, step=1)
    assert indices(KEYS) != indices(tiny.keys(entropy=bytes(32)))
    assert indices(KEYS) != indices(tiny.keys(fingerprint='e' * 64))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 80),
    st.floats(0.01, 1.0),
    st.integers(1, 80),
    st.sampled_from([1, 3]),
    st.integers(0, 1000),
)
def test_a_draw_has_the_plans_shape_and_no_duplicates(n, prob, capacity, groups, step):
    mechanism = dataclasses.replace(
        MECHANISM, sampling_prob=prob, capacity=capacity, num_groups=groups
    )
    draw = poisson_draw(mechanism, n, KEYS, step)
    shape = (groups, capacity) if groups > 1 else (capacity, 1)
    assert draw.indices.shape == draw.is_padding_example.shape == shape
    assert draw.indices.dtype == np.int32
    chosen = taken(draw)
    assert len(set(chosen.tolist())) == len(chosen)
    assert np.all((chosen >= 0) & (chosen < n))
    assert np.all(draw.indices[draw.is_padding_example] == 0)


def test_a_probability_of_one_takes_everybody():
    draw = poisson_draw(dataclasses.replace(MECHANISM, sampling_prob=1.0), N, KEYS, 0)
    assert sorted(taken(draw).tolist()) == list(range(N))


def test_a_draw_that_fits_is_not_cut_and_one_that_does_not_is():
    whole = taken(poisson_draw(MECHANISM, N, KEYS, 5))
    assert len(whole) > 4
    for capacity in (len(whole), 4):
        mechanism = dataclasses.replace(MECHANISM, capacity=capacity)
        cut = taken(poisson_draw(mechanism, N, KEYS, 5))
        assert len(cut) == capacity and set(cut) <= set(whole)


def test_groups_are_chosen_uniformly_and_independently():
    groups = 4
    mechanism = dataclasses.replace(MECHANISM, num_groups=groups)
    segment_ids = np.full((STEPS, N), -1)
    for step in range(STEPS):
        draw = poisson_draw(mechanism, N, KEYS, step)
        for g in range(groups):
            segment_ids[step, draw.indices[g][~draw.is_padding_example[g]]] = g
    for g in range(groups):
        assert is_binomial((segment_ids == g).sum(axis=0), STEPS, PROB / groups)
        # Sizes vary as a binomial's do: records are not dealt evenly.
        sizes = (segment_ids == g).sum(axis=1)
        expected = N * PROB / groups * (1 - PROB / groups)
        assert sizes.var() == pytest.approx(expected, rel=0.1)
    same = [
        ((segment_ids == g).T.astype(int) @ (segment_ids == g)) for g in range(groups)
    ]
    pairs = sum(same)[np.triu_indices(N, 1)]
    assert is_binomial(pairs, STEPS, PROB**2 / groups)


def test_only_eligible_records_are_drawn_each_with_the_same_probability():
    eligible = np.arange(7, N, 5)
    seen = history(MECHANISM, eligible, steps=1000).sum(axis=0)
    others = np.setdiff1d(np.arange(N), eligible)
    assert not np.any(seen[others])
    assert is_binomial(seen[eligible], 1000, PROB)


# --- slots ----------------------------------------------------------------------------


def slots_of(draws, number=N):
    """[draws, number]: each record's slot, -1 where it is not drawn."""
    made = np.full((len(draws), number), -1)
    for row, draw in zip(made, draws, strict=True):
        where = np.flatnonzero(~draw.is_padding_example[:, 0])
        row[draw.indices[where, 0]] = where
    return made


@pytest.mark.parametrize('present', [5, 4])
def test_slots_are_uniform_whoever_else_is_there(present):
    """Of each record, and of each pair: dealt without replacement, one more or less."""
    room, steps = 8, 6000
    everybody = dataclasses.replace(MECHANISM, sampling_prob=1.0, capacity=room)
    draws = [poisson_draw(everybody, present, KEYS, step) for step in range(steps)]
    slots = slots_of(draws, present)
    for record in range(present):
        counts = np.bincount(slots[:, record], minlength=room)
        assert is_binomial(counts, steps, 1 / room)
    pairs = slots[:, 0] * room + slots[:, 1]
    counts = np.bincount(pairs, minlength=room**2).reshape(room, room)
    assert not np.diag(counts).any()
    apart = counts[~np.eye(room, dtype=bool)]
    assert is_binomial(apart, steps, 1 / (room * (room - 1)))


def test_records_of_a_group_have_any_of_its_slots():
    mechanism = dataclasses.replace(MECHANISM, num_groups=2, capacity=20)
    draws = [poisson_draw(mechanism, N, KEYS, step) for step in range(STEPS)]
    taken = np.sum([~draw.is_padding_example for draw in draws], axis=0)
    assert is_binomial(taken, STEPS, taken.sum() / taken.size / STEPS)


ROOM = 40  # slots of MECHANISM's draws below


def window(*sizes):
    """A draw of each size, with records of its own."""
    mechanism = dataclasses.replace(MECHANISM, capacity=ROOM, sampling_prob=1.0)
    return [
        poisson_draw(mechanism, np.arange(100 * i, 100 * i + size), KEYS, i)
        for i, size in enumerate(sizes)
    ]


def test_units_that_are_added_to_a_draw_are_empty():
    draw = Draw(np.array([[3], [0]]), np.array([[False], [True]]))
    made = draw.padded(5)
    assert made.indices.shape == made.is_padding_example.shape == (5, 1)
    assert made.indices[~made.is_padding_example].tolist() == [3]
    assert np.array_equal(made.indices[:2], draw.indices)


@pytest.mark.parametrize('sizes', [(16, 0, 12), (30, 6), (0, 0)])
def test_packed_draws_are_the_draws_of_the_window_in_one_length(sizes):
    draws, length = window(*sizes), 36
    whole, segment_ids = packed(draws, length, KEYS.rng('slots', 0))
    assert whole.indices.shape == (length, 1) and segment_ids.shape == (length,)
    for step, draw in enumerate(draws):
        own = ~whole.is_padding_example[:, 0] & (segment_ids == step)
        assert sorted(whole.indices[own, 0]) == sorted(taken(draw))


def test_a_window_that_does_not_fit_is_cut():
    draws = window(16, 0, 12)
    whole, segment_ids = packed(draws, 20, KEYS.rng('slots', 0))
    assert not whole.is_padding_example.any()
    assert np.bincount(segment_ids).tolist() == [16, 0, 4]


def test_packed_slots_are_uniform():
    draws, steps, room = window(2, 1), 4000, 5
    where = []
    for step in range(steps):
        whole, _ = packed(draws, room, KEYS.rng('slots', step))
        where.append(~whole.is_padding_example[:, 0])
    assert is_binomial(np.sum(where, axis=0), steps, 3 / room)


def test_packed_batches_of_one_size_have_no_padding():
    draws = [shuffled_batches(N, 5, 'dpagg', KEYS, step) for step in range(4)]
    whole, segment_ids = packed(draws, 20, KEYS.rng('slots', 0))
    assert not whole.is_padding_example.any()
    np.testing.assert_array_equal(np.sort(segment_ids), np.repeat(np.arange(4), 5))


# --- what the papers run --------------------------------------------------------------


def test_shuffled_batches_are_epochs_without_their_last_odd_batch():
    size, per_epoch = 7, N // 7
    epochs = []
    for epoch in range(3):
        steps = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        draws = [shuffled_batches(N, size, 'conv1', KEYS, step) for step in steps]
        assert all(draw.indices.shape == (size, 1) for draw in draws)
        assert not any(np.any(draw.is_padding_example) for draw in draws)
        order = np.concatenate([taken(draw) for draw in draws])
        assert len(set(order.tolist())) == per_epoch * size
        epochs.append(order.tolist())
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_shuffled_batch_is_at_most_everybody():
    draw = shuffled_batches(N, N + 1, 'conv1', KEYS, 3)
    np.testing.assert_array_equal(np.sort(taken(draw)), np.arange(N))


def test_shuffled_batches_of_two_mechanisms_differ():
    first = shuffled_batches(N, 7, 'conv1', KEYS, 0)
    second = shuffled_batches(N, 7, 'dpagg', KEYS, 0)
    assert not np.array_equal(first.indices, second.indices)
