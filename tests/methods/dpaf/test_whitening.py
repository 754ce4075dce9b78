"""Contracts of the match loss's metric: the inverse spread of the fakes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf.phase2 import whitening
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.phase2.generator_update import FOLDS, _whitened_distance
from dpaf_jax.methods.dpaf.phase2.one_shot_phase import OneShotPhase
from dpaf_jax.methods.dpaf.phase2.schedule import EARLY
from dpaf_jax.methods.dpaf.phase2.whitening import CHUNK, Whitening, blocks, whitened
from dpaf_jax.privacy.keys import public_key
from dpaf_jax.runtime import parallel

CHUNKS, PART = 2, 3
NUMBER = CHUNKS * CHUNK
FIELDS = {**tiny.ONE_SHOT, 'dpaf__generator__whitenings': 1}


def make_gan(devices=1, sigma=0.1, **fields):
    config = tiny.config(**{**FIELDS, **fields})
    plan = tiny.plan(config, sigma)
    return Gan(config, plan, devices)


def released(gan):
    """A state whose generator spreads and whose table is anything."""
    state = tiny.state(gan, scale=0.3)
    table = np.random.default_rng(0).normal(size=state.pooled.shape, scale=0.1)
    table[:, 0] = gan.taps.scale(gan.taps.blocks[0])  # counts as expected
    known = np.ones(gan.schedule.num_aggregates, np.float32)
    return state._replace(pooled=np.float32(table), num_pooled=known)


def public(chunk):
    """The coins of a chunk; a part's first one is for the centres."""
    return tiny.keys().public('whitening', PART * (CHUNKS + 1) + 1 + chunk)


def made(gan, monkeypatch, folder):
    """The factors, as every device holds them."""
    monkeypatch.setattr(whitening, 'CHUNKS', CHUNKS)
    run = tiny.run(folder, gan.config, gan.num_devices)
    state = parallel.replicate(released(gan), run.devices)
    return parallel.unreplicate(Whitening(run, gan).metric(state, PART))


@functools.cache
def rows_by_hand(gan):
    """[NUMBER, F] rows of the same fakes and their labels."""
    state = released(gan)
    labels = np.arange(CHUNK) % gan.schedule.num_aggregates

    @jax.jit
    def of_chunk(key):
        z = jax.random.normal(public_key(key), (CHUNK, gan.networks.z_dim))
        images = gan.networks.generator.apply(state.reference, z, labels)
        return gan.aggregator.rows(state.params, images, labels)

    rows = [of_chunk(public(chunk)) for chunk in range(CHUNKS)]
    return np.float64(np.concatenate(rows)), np.tile(labels, CHUNKS)


def covariance_by_hand(gan, block):
    rows, labels = rows_by_hand(gan)
    rows, number = rows[:, block], gan.schedule.num_aggregates
    means = np.stack([rows[labels == c].mean(axis=0) for c in range(number)])
    return np.cov((rows - means[labels]).T, bias=True)


def ridges(gan):
    """What is added to each block's covariance, as matrices."""
    noise = whitening.NOISE_RIDGE * np.mean(
        (gan.schedule.dpagg.noise_std / gan.schedule.expected_counts) ** 2
    )
    for block in blocks(gan.taps):
        covariance = covariance_by_hand(gan, block)
        mean = np.trace(covariance) / len(covariance)
        yield max(whitening.LEAST_RIDGE * mean, noise) * np.eye(len(covariance))


@pytest.mark.parametrize('devices', [pytest.param(1, marks=pytest.mark.slow), 8])
def test_factors_are_the_inverse_of_the_covariance_within_classes(
    devices, monkeypatch, tmp_path
):
    gan = make_gan(devices)
    factors = made(gan, monkeypatch, tmp_path)
    for block, ridge, factor in zip(
        blocks(gan.taps), ridges(gan), factors, strict=True
    ):
        product = np.float64(factor) @ np.float64(factor).T
        expected = covariance_by_hand(gan, block) + ridge
        np.testing.assert_allclose(product @ expected, np.eye(len(ridge)), atol=2e-3)


def test_noise_raises_the_ridge(monkeypatch, tmp_path):
    quiet, loud = (made(make_gan(sigma=s), monkeypatch, tmp_path) for s in (1e-3, 1e3))
    gan = make_gan(sigma=1e3)
    floor = whitening.NOISE_RIDGE * np.mean(
        (gan.schedule.dpagg.noise_std / gan.schedule.expected_counts) ** 2
    )
    for few, many in zip(quiet, loud, strict=True):
        assert np.square(few).sum() > np.square(many).sum()
        assert np.linalg.norm(many, 2) ** 2 <= 1.001 / floor


def test_blocks_cover_every_column_but_the_count_once(monkeypatch):
    monkeypatch.setattr(whitening, 'LONGEST', 50)
    layout = make_gan().taps
    columns = [range(layout.size)[block] for block in blocks(layout)]
    assert max(map(len, columns)) <= 50
    assert [c for part in columns for c in part] == list(range(1, layout.size))
    assert layout.blocks[0].name == 'count'


def test_a_whitened_gap_has_the_length_of_its_mahalanobis_distance(
    monkeypatch, tmp_path
):
    gan = make_gan()
    gap = np.random.default_rng(1).normal(size=gan.taps.size)
    seen = whitened(made(gan, monkeypatch, tmp_path), gan.taps, np.float32(gap))
    expected = sum(
        gap[block] @ np.linalg.solve(covariance_by_hand(gan, block) + ridge, gap[block])
        for block, ridge in zip(blocks(gan.taps), ridges(gan), strict=True)
    )
    assert float(seen @ seen) == pytest.approx(expected, rel=1e-3)


def test_the_loss_is_the_mean_over_pairs_of_folds_of_their_mahalanobis_product(
    monkeypatch, tmp_path
):
    gan, each = make_gan(), 10
    factors, state = made(gan, monkeypatch, tmp_path), released(gan)
    rows = np.random.default_rng(2).normal(size=(3 * each, gan.taps.size), scale=0.1)
    one = jax.local_devices()[:1]
    loss = parallel.pmapped(
        lambda state, rows, factors: _whitened_distance(
            gan, state, rows, jnp.zeros(len(rows), bool), each, factors
        ),
        one,
    )
    seen = loss(*parallel.replicate((state, np.float32(rows), factors), one))
    gaps = rows.reshape(3, each, -1) - state.pooled[:, None]
    expected = 0.0
    for block, factor in zip(blocks(gan.taps), factors, strict=True):
        inverse = np.float64(factor) @ np.float64(factor).T
        for label in range(3):
            owner = (label * each + np.arange(each)) % FOLDS
            folds = [gaps[label, owner == f].mean(axis=0) for f in range(FOLDS)]
            means = np.stack(folds)[:, block]
            products = means @ inverse @ means.T
            expected += products[~np.eye(FOLDS, dtype=bool)].mean() / 3 / gan.taps.size
    assert float(seen[0]) == pytest.approx(expected, rel=1e-3)


def test_where_the_noise_is_longer_than_the_limit_nothing_is_whitened():
    length = make_gan().schedule.noise_length
    for below, expected in ((0.0, 1), (1.01 * length, 1), (0.99 * length, 0)):
        gan = make_gan(dpaf__generator__whiten_below=below)
        assert gan.schedule.whitenings == expected
        assert bool(tiny.state(gan).reference) == bool(expected)
        assert gan.schedule.updates_per_part == 4 // (1 + expected)


def test_where_taps_are_read_along_axes_the_limit_is_half_as_long():
    """As much noise in an entry: axes leave a quarter of a row's columns."""
    for axes, expected in (('none', 1.0), ('all', 0.5)):
        fields = {'dpaf__taps': 'count,wavelet', 'dpaf__axes': axes}
        gan = make_gan(dpaf__generator__whiten_below=0.4, **fields)
        assert gan.schedule.whiten_below == pytest.approx(0.4 * expected)


@pytest.mark.slow
def test_until_it_is_whitened_a_step_looks_at_a_share_of_the_fakes(
    monkeypatch, tmp_path
):
    seen = []
    fakes = Gan.fakes
    monkeypatch.setattr(
        Gan,
        'fakes',
        lambda gan, p, key, y: seen.append(len(y)) or fakes(gan, p, key, y),
    )
    gan = make_gan(dpaf__generator__batch_size=90)
    run = tiny.run(tmp_path, gan.config, 1)
    phase = OneShotPhase(run, gan, None)
    state, step, told = parallel.replicate(phase.init(), run.devices), 0, [0.0]
    while step < phase.total_steps:
        seen.clear()
        state, step, _ = phase.window(state, step)
        if seen:  # it was traced anew
            told.append(seen[-1])
    assert told == [0.0, 90 // EARLY, 90]
    assert phase.images(1) == 90 // EARLY
    half = phase.total_steps // 2
    assert phase.images(half) == half * 90 // EARLY
    assert phase.images(phase.total_steps) == half * (90 // EARLY + 90)
    plain = make_gan(dpaf__generator__batch_size=90, dpaf__generator__whitenings=0)
    assert OneShotPhase(run, plain, None).images(4) == 4 * 90
