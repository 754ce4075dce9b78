"""Contracts of clipping, of gradient compression, and of the clipped sum."""

import functools
import math
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaf_jax.privacy import clipping
from dpaf_jax.privacy.clipping import (
    SAMPLE,
    SMALL,
    clip_factor,
    clip_vector,
    clipped_gradient_sum,
    keep_largest,
    least_rank,
)
from dpaf_jax.privacy.grid import Grid
from dpaf_jax.privacy.summation import settled

pytestmark = pytest.mark.usefixtures('optimised')

EVERY_FLOAT = st.floats(width=32, allow_nan=True, allow_infinity=True)
SIZE = 7
clip = jax.jit(clip_vector)


@functools.partial(jax.jit, static_argnums=1)
def keep(vector, fraction):
    return keep_largest(vector, least_rank(vector, fraction))


def norm(array):
    """In float64, where squares of float32 neither overflow nor vanish."""
    return float(np.linalg.norm(np.asarray(array, np.float64).ravel()))


@pytest.mark.parametrize('bound', [1e-3, 1.0, 2.5, 1e4])
@pytest.mark.parametrize('exponent', [*range(-30, 38, 4), 38])
def test_clip_keeps_the_norm_below_the_bound_at_every_magnitude(exponent, bound):
    vector = np.random.default_rng(0).uniform(-1, 1, size=1000) * 10.0**exponent
    vector = vector.astype(np.float32)
    clipped = clip(vector, bound)
    assert norm(clipped) <= bound
    if norm(vector) > 1e18 * bound:  # its square may not be a float32: then zeros
        assert norm(clipped) == 0 or norm(vector) < 1e20 * bound
        return
    expected = min(norm(vector), bound)
    assert norm(clipped) == pytest.approx(expected, rel=3e-5)
    assert np.allclose(clipped / np.float64(expected), vector / norm(vector), atol=1e-6)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(EVERY_FLOAT, min_size=SIZE, max_size=SIZE),
    st.floats(min_value=2.0**-20, max_value=2.0**20, width=32),
)
def test_clip_bounds_whatever_it_is_given(values, bound):
    clipped = np.asarray(clip(np.array(values, np.float32), bound))
    assert np.all(np.isfinite(clipped))
    assert norm(clipped) <= bound


@pytest.mark.parametrize('poison', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('bound', [1.0, math.inf])
def test_clip_turns_a_vector_that_is_not_finite_into_zeros(poison, bound):
    assert np.array_equal(clip(np.array([1.0, poison, 2.0]), bound), np.zeros(3))


def test_an_infinite_bound_clips_nothing():
    vector = np.array([3e30, -1.0, 0.0, 1e-5], np.float32)
    np.testing.assert_allclose(clip(vector, math.inf), vector, rtol=1e-6)


def test_clip_treats_any_shape_as_one_vector():
    matrix = np.full((3, 4), 5.0, np.float32)
    np.testing.assert_allclose(clip(matrix, 1.0), matrix / norm(matrix), rtol=2e-5)


def test_clip_leaves_what_has_no_entries():
    assert clip(np.zeros((0, 3), np.float32), 1.0).shape == (0, 3)
    made = clip_vector({'none': jnp.zeros(0), 'some': jnp.full(4, 5.0)}, 1.0)
    assert norm(np.asarray(made['some'])) == pytest.approx(1, rel=1e-4)


clip_jacobian = jax.jit(jax.jacobian(clip_vector))


@pytest.mark.parametrize('scale', [0.0, 1e-30, 1e-3, 1.0, 1e30])
def test_clip_has_a_finite_gradient(scale):
    assert np.all(np.isfinite(clip_jacobian(np.full(3, scale, np.float32), 1.0)))


@pytest.mark.parametrize('scale', [1e-30, 1e-3, 1e3])
def test_clip_has_the_gradient_of_a_projection(scale):
    vector = np.array([1.0, 2.0, -2.0], np.float32) * np.float32(scale)
    expected = np.eye(3)
    if scale == 1e3:  # clipped to 9: only the direction is free
        direction = np.array([1.0, 2.0, -2.0]) / 3
        expected = 9 / 3e3 * (np.eye(3) - np.outer(direction, direction))
    np.testing.assert_allclose(
        clip_jacobian(vector, 9.0), expected, rtol=1e-3, atol=1e-6
    )


def reference_threshold(vector, fraction):
    """The magnitude of the last entry that a full sort keeps, in float64."""
    wanted = math.ceil(round(fraction * len(vector), 9))
    return np.sort(np.abs(vector.astype(np.float64)))[::-1][wanted - 1], wanted


@pytest.mark.parametrize('fraction', [0.01, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize('size', [1, 10, 997])
@pytest.mark.parametrize('scale', [1e-30, 1.0, 1e30])
def test_keep_largest_agrees_with_a_sort(size, fraction, scale):
    rng = np.random.default_rng(size)
    vector = (scale * rng.normal(size=size) ** 3).astype(np.float32)
    threshold, wanted = reference_threshold(vector, fraction)
    kept = np.asarray(keep(vector, fraction))
    magnitude = np.abs(vector.astype(np.float64))
    assert np.array_equal(kept != 0, kept == vector)  # kept whole, or zeroed
    assert np.count_nonzero(kept) >= wanted
    assert np.all(kept[magnitude >= threshold] == vector[magnitude >= threshold])
    # The threshold is found to a relative width of 2^-7 of its octave.
    assert np.all(kept[magnitude < threshold * (1 - 2**-7)] == 0)


def test_keep_largest_drops_what_is_clearly_smaller():
    vector = np.where(np.arange(100) % 10 == 3, 0.5, 1.0).astype(np.float32)
    kept = np.asarray(keep(vector, 0.9))
    assert np.array_equal(np.flatnonzero(kept == 0), np.arange(3, 100, 10))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0]), min_size=10, max_size=10),
    st.sampled_from([0.1, 0.25, 0.5, 0.9]),
)
def test_keep_largest_keeps_its_fraction_among_ties(values, fraction):
    vector = np.array(values, np.float32)
    kept = np.asarray(keep(vector, fraction))
    threshold, _ = reference_threshold(vector, fraction)
    assert np.array_equal(kept, np.where(np.abs(vector) >= threshold, vector, 0))


@pytest.mark.parametrize('size', [3 * SAMPLE, 131072])
def test_keep_largest_of_a_long_vector_keeps_about_its_fraction(size):
    rng = np.random.default_rng(size)
    vector = rng.normal(size=size).astype(np.float32)
    kept = np.asarray(keep(vector, 0.9))
    assert np.count_nonzero(kept) == pytest.approx(0.9 * size, abs=0.015 * size)
    assert np.abs(vector[kept == 0]).max() <= np.abs(vector[kept != 0]).min()


def test_a_tree_is_one_vector_to_clip_and_to_compress():
    rng = np.random.default_rng(1)
    tree = {'a': rng.normal(size=(5, 7)), 'b': 9 * rng.normal(size=11)}
    tree = jax.tree.map(np.float32, tree)
    whole = np.concatenate([tree['a'].ravel(), tree['b']])
    for made, expected in (
        (clip(tree, 2.0), clip(whole, 2.0)),
        (keep(tree, 0.5), keep(whole, 0.5)),
    ):
        joined = np.concatenate([np.ravel(made['a']), made['b']])
        np.testing.assert_allclose(joined, expected, rtol=1e-5)


def test_signs_of_what_is_kept_have_the_norm_of_the_bound():
    gradients = {'a': jnp.array([[3.0, -0.1, 0.0, -2.0], [jnp.nan, 1, 1, 1]])}
    total = clipped_gradient_sum(
        lambda params, unit: jnp.vdot(params['a'], unit['a']),
        {'a': jnp.zeros(4)},
        gradients,
        jnp.zeros(2, bool),
        l2_clip_norm=0.5,
        grid=None,
        keep_fraction=0.5,
        signs=True,
    )
    np.testing.assert_allclose(
        total['a'], 0.5 / np.sqrt(2) * np.array([1, 0, 0, -1]), rtol=1e-4
    )


def test_a_keep_fraction_of_one_keeps_everything():
    vector = np.array([0.0, -1e-38, 2.0], np.float32)
    assert np.array_equal(keep(vector, 1.0), vector)


# --- the clipped sum ------------------------------------------------------------------

PARAMS = {
    'a': np.array([0.3, -1.2, 0.7, 2.0], np.float32),
    'b': np.array([[0.5, -0.4], [1.5, 0.1]], np.float32),
}
BOUND, FRACTION = 0.8, 0.75


def unit_loss(params, unit):
    score = jnp.vdot(params['a'], unit['x']) + jnp.sum(params['b'] @ unit['x'][:2])
    return jnp.square(score - unit['y']) + jnp.vdot(params['b'], params['b']) / 9


def units(number, scale=1.0):
    rng = np.random.default_rng(7)
    return {
        'x': (scale * rng.normal(size=(number, 4))).astype(np.float32),
        'y': rng.normal(size=number).astype(np.float32),
    }


@jax.jit
def clipped_sum(batch, is_padding):
    return clipped_gradient_sum(
        unit_loss,
        PARAMS,
        batch,
        is_padding,
        l2_clip_norm=BOUND,
        grid=None,
        keep_fraction=FRACTION,
    )


unit_gradient = jax.jit(jax.grad(unit_loss))


def loop(batch, is_padding):
    """One unit after the other: gradient, compress by a sort, clip, add; float64."""
    total = np.zeros(8)
    for i in np.flatnonzero(~is_padding):
        unit = {name: value[i] for name, value in batch.items()}
        gradient = unit_gradient(PARAMS, unit)
        vector = np.concatenate([np.ravel(gradient['a']), np.ravel(gradient['b'])])
        order = np.argsort(-np.abs(vector), kind='stable')
        vector[order[round(FRACTION * 8) :]] = 0
        total += vector * min(1.0, BOUND / norm(vector))
    return {'a': total[:4], 'b': total[4:].reshape(2, 2)}


def test_what_settles_is_unchanged_and_the_compiler_keeps_its_loop():
    """Without the loop it could compute twice what the norm and the sum read."""
    program = jax.jit(lambda x: settled({'a': jnp.exp(x), 'b': x})).lower(PARAMS['a'])
    assert ' while(' in program.compile().as_text()
    for first in (0.5, np.nan, np.inf, -np.inf):
        values = np.array([first, -2.0, 0.0], np.float32)
        np.testing.assert_array_equal(settled({'x': values})['x'], values)


def test_all_that_is_clipped_was_settled(monkeypatch):
    def lost(tree):
        return jax.tree.map(jnp.zeros_like, tree)

    monkeypatch.setattr(clipping, 'settled', lost)
    made = clipped_gradient_sum(
        unit_loss, PARAMS, units(6), np.zeros(6, bool), l2_clip_norm=BOUND, grid=None
    )
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(made))


@pytest.mark.parametrize('value', [np.nan, np.inf, 3e38])
def test_a_factor_is_a_number_whatever_the_vector(value):
    assert clip_factor({'a': np.float32([1.0, value])}, 1.0) == 0


@pytest.mark.parametrize(
    'sizes',
    [
        *((5, SMALL, 3), (2, 3)),
        *(
            pytest.param(s, marks=pytest.mark.slow)
            for s in [(SMALL, 7), (SMALL, 2 * SMALL)]
        ),
    ],
)
def test_leaves_large_and_small_come_back_where_they_were(sizes):
    rng = np.random.default_rng(4)
    rows = {
        f'{i}': rng.normal(size=(3, size, 1)).astype(np.float32)
        for i, size in enumerate(sizes)
    }
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:]), rows)

    def linear(params, unit):
        return sum(jnp.vdot(params[name], unit[name]) for name in params)

    query = functools.partial(
        clipped_gradient_sum, linear, params, rows, np.zeros(3, bool), l2_clip_norm=1e3
    )
    for made in (query(grid=None), query(grid=Grid(2.0**-10)).rounded()):
        for name, leaf in rows.items():
            assert made[name].shape == leaf.shape[1:]
            np.testing.assert_allclose(made[name], leaf.sum(axis=0), atol=4e-3)


@pytest.mark.parametrize('scale', [0.01, 1.0])
def test_the_clipped_sum_equals_a_loop_over_units(scale):
    batch, nobody = units(6, scale), np.zeros(6, bool)
    made, expected = clipped_sum(batch, nobody), loop(batch, nobody)
    for name in PARAMS:
        np.testing.assert_allclose(made[name], expected[name], rtol=1e-4, atol=1e-5)


def test_padding_contributes_nothing_whatever_it_holds():
    batch, is_padding = units(6), np.array([False, True] * 3)
    made, expected = clipped_sum(batch, is_padding), loop(batch, is_padding)
    batch['x'][1], batch['x'][3], batch['x'][5] = np.nan, np.inf, 1e30
    poisoned = clipped_sum(batch, is_padding)
    for name in PARAMS:
        np.testing.assert_allclose(made[name], expected[name], rtol=1e-4, atol=1e-5)
        assert np.array_equal(made[name], poisoned[name])


def test_a_draw_of_padding_alone_sums_to_zero():
    made = clipped_sum(units(6), np.ones(6, bool))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(made))


@pytest.mark.parametrize('poison', [1e30, 1e15, np.nan, np.inf, 0.0])
def test_a_poisoned_unit_moves_the_sum_by_at_most_the_bound(poison):
    batch = units(6)
    without = clipped_sum(batch, np.arange(6) == 2)
    batch['x'][2] = poison
    with_it = clipped_sum(batch, np.zeros(6, bool))
    moved = [np.float64(with_it[n]) - np.float64(without[n]) for n in PARAMS]
    assert norm(np.concatenate([m.ravel() for m in moved])) <= BOUND * (1 + 1e-6)


def test_a_finite_poison_moves_the_sum_by_all_of_the_bound():
    batch = units(6)
    without = clipped_sum(batch, np.arange(6) == 2)
    batch['x'][2] = 1e7
    with_it = clipped_sum(batch, np.zeros(6, bool))
    moved = np.concatenate([np.ravel(with_it[n] - without[n]) for n in PARAMS])
    assert norm(moved) == pytest.approx(BOUND, rel=1e-4)


FAST_MATH = ' '.join(
    f'--xla_cpu_{flag}'
    for flag in (
        'enable_fast_math=true',
        'fast_math_honor_nans=false',
        'fast_math_honor_infs=false',
        'fast_math_honor_division=false',
    )
)


@pytest.mark.parametrize('flags', ['', FAST_MATH])
def test_arithmetic_that_loses_the_clip_is_refused(flags):
    script = 'from dpaf_jax.privacy.clipping import require_arithmetic as r; r()'
    done = subprocess.run(
        [sys.executable, '-c', script],
        env={**os.environ, 'XLA_FLAGS': flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (not flags), done.stderr
    assert ('let a gradient with nan in it pass the clip' in done.stderr) == bool(flags)


def test_an_infinite_bound_sums_plain_gradients():
    batch = units(6)
    made = jax.jit(
        lambda b: clipped_gradient_sum(
            unit_loss, PARAMS, b, jnp.zeros(6, bool), l2_clip_norm=math.inf, grid=None
        )
    )(batch)
    expected = jax.jit(
        jax.grad(lambda p: jnp.sum(jax.vmap(unit_loss, in_axes=(None, 0))(p, batch)))
    )(PARAMS)
    for name in PARAMS:
        np.testing.assert_allclose(made[name], expected[name], rtol=1e-5, atol=1e-6)
