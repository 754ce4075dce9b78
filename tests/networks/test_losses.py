"""Contracts of the losses."""

import math

import numpy as np
import pytest

from dpaf_jax.networks import losses

COINS = np.random.default_rng(5)


def distance(rows, target):
    """The loss of one aggregate from its draws."""
    return losses.unbiased_squared_distance(
        rows.sum(axis=0)[None],
        np.square(rows).sum()[None],
        np.array([float(len(rows))]),
        target[None],
    )[0]


def test_the_unbiased_distance_is_the_mean_over_pairs():
    rows, target = COINS.normal(size=(6, 4)), COINS.normal(size=4)
    products = (rows - target) @ (rows - target).T
    pairs = products[~np.eye(6, dtype=bool)]
    assert distance(rows, target) == pytest.approx(pairs.mean(), rel=1e-4)


def test_the_unbiased_distance_does_not_count_the_spread_of_the_draws():
    mean, target, n, repeats = (
        np.array([1.0, 2.0, 0.0]),
        np.array([0.0, 2.0, 0.5]),
        3,
        4000,
    )
    rows = mean + 2.0 * COINS.normal(size=(repeats, n, 3))
    made = losses.unbiased_squared_distance(
        rows.sum(axis=1),
        np.square(rows).sum(axis=(1, 2)),
        np.full(repeats, float(n)),
        np.tile(target, (repeats, 1)),
    )
    made = np.asarray(made, np.float64)
    error = 4 * made.std() / np.sqrt(repeats)
    assert made.mean() == pytest.approx(1.25, abs=error)
    plain = np.square(rows.mean(axis=1) - target).sum(axis=1)
    assert plain.mean() > 1.25 + 2 * error  # the plain estimate is off by 12 / 3


def test_aggregates_do_not_mix_in_the_unbiased_distance():
    rows = COINS.normal(size=(2, 5, 3))
    targets = COINS.normal(size=(2, 3))
    made = losses.unbiased_squared_distance(
        rows.sum(axis=1),
        np.square(rows).sum(axis=(1, 2)),
        np.full(2, 5.0),
        targets,
    )
    alone = [distance(r, t) for r, t in zip(rows, targets, strict=True)]
    np.testing.assert_allclose(made, alone, rtol=1e-4)


def test_total_variation_counts_steps_between_neighbours():
    edge = np.zeros((4, 5, 1), np.float32)
    edge[2:] = 0.5  # one step down each of five columns, of 3 x 5 pairs
    images = np.stack([np.full((4, 5, 1), 0.7, np.float32), edge, 2 * edge])
    seen = losses.total_variation(images)
    np.testing.assert_allclose(seen, [0, 0.5 / 3, 1 / 3], rtol=1e-6)
    turned = losses.total_variation(images.transpose(0, 2, 1, 3))
    np.testing.assert_allclose(turned, seen, rtol=1e-6)


def test_variation_in_colour_is_of_brightness_and_more_of_hues():
    grey = COINS.uniform(size=(2, 6, 6, 1)).astype(np.float32)
    colours = np.repeat(grey, 3, axis=-1)
    seen = losses.total_variation(grey)
    np.testing.assert_allclose(losses.total_variation(colours), seen, rtol=1e-5)
    # Red against blue at the same brightness: no step of brightness, one of a hue.
    hues = grey * np.float32([1, 0, -1])
    most = losses.HUES * 2 * math.sqrt(2) * seen  # in two hues, sides of a square
    least = losses.HUES * math.sqrt(2) * seen
    varied = losses.total_variation(hues)
    assert (varied >= least * 0.999).all() and (varied <= most).all()


def test_the_unbiased_length_is_the_mean_over_pairs():
    gaps = COINS.normal(size=(2, 4, 3))
    pairs = [(g @ g.T)[~np.eye(4, dtype=bool)].mean() for g in gaps]
    np.testing.assert_allclose(losses.unbiased_squared_length(gaps), pairs, rtol=1e-4)


def test_single_draws_as_folds_give_the_unbiased_distance():
    rows, target = COINS.normal(size=(6, 4)), COINS.normal(size=4)
    made = losses.unbiased_squared_length((rows - target)[None])[0]
    np.testing.assert_allclose(made, distance(rows, target), rtol=1e-4)


def test_the_cross_entropy_of_reals_is_minus_the_log_likelihood():
    logits = np.array([[-2.0], [0.5], [3.0]], np.float32)
    expected = -np.log(1 / (1 + np.exp(-logits))).mean()
    assert losses.real_cross_entropy(logits) == pytest.approx(expected)


def test_the_cross_entropy_of_reals_survives_sure_answers():
    sure = np.array([[-500.0]], np.float32)
    assert losses.real_cross_entropy(sure) == pytest.approx(500)


def test_proportions_error_is_the_mean_square_of_softmax_minus_truth():
    logits = np.log(np.array([[0.2, 0.3, 0.5]]))
    assert losses.proportions_error(logits, np.array([[0.2, 0.3, 0.5]])) < 1e-12
    made = losses.proportions_error(logits, np.array([[1.0, 0.0, 0.0]]))
    assert made == pytest.approx((0.8**2 + 0.3**2 + 0.5**2) / 3)
