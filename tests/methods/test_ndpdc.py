"""NDPDC: one clipped row a record, every aggregate charged, images from aggregates alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

from dpaf_jax import methods
from dpaf_jax.audit import canaries
from dpaf_jax.audit.methods import ndpdc as audit
from dpaf_jax.methods.embedding.ndpdc import condensation
from dpaf_jax.methods.embedding.ndpdc.aggregate import AggregatePhase
from dpaf_jax.methods.embedding.ndpdc.condensation import AGGREGATE, Condensation
from dpaf_jax.methods.embedding.ndpdc.condense import CondensePhase
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.bundle import load_release
from dpaf_jax.release.drawing import Release
from dpaf_jax.release.samplers.condensed import CondensedSampler, condensed_sampler
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.input_pipeline import records
from dpaf_jax.training.run import Run
from dpaf_jax.verify.verification import verify

SEED = np.arange(4, dtype=np.uint32)
KEY = np.arange(8, dtype=np.uint32)


def config(**fields):
    return tiny.config(method='ndpdc', **fields)


def method_of(sigma=1.0, **fields):
    typed = config(**fields)
    return Condensation(typed, tiny.plan(typed, sigma))


def released(run, method=None):
    """The aggregates of a whole phase 1."""
    return run.train(AggregatePhase(run, method or Condensation(run.config, run.plan)))


# --- the plan -------------------------------------------------------------------------


@pytest.mark.parametrize('guarantee', ['certified', 'as_published'])
def test_every_aggregate_is_charged_as_a_sampled_gaussian(guarantee):
    typed = config(privacy__epsilon=2.0, privacy__guarantee=guarantee)
    plan = methods.get('ndpdc').plan(typed, 40)
    (m,) = plan.mechanisms
    assert (m.sampling_prob, m.steps, m.l2_sensitivity) == (8 / 40, 3, 1.0)
    assert plan.guarantee == CERTIFIED
    once = PoissonSampledDpEvent(0.2, GaussianDpEvent(m.noise_multiplier))
    event = SelfComposedDpEvent(once, 3)
    spent = accounting.epsilon_pld(event, plan.delta - plan.overflow_delta)
    assert 0.999 * 2 < spent <= plan.epsilon <= 2


def test_steps_on_the_images_cost_nothing():
    few, many = config(ndpdc__steps=1), config(ndpdc__steps=100_000)
    plan = methods.get('ndpdc').plan
    assert plan(few, 40) == plan(many, 40)


@pytest.mark.parametrize(
    ('field', 'value'), [('batch_size', 41), ('depth', 4), ('parts', 4)]
)
def test_what_does_not_fit_is_refused_by_name(field, value):
    side = {'data__image_size': 4} if field == 'parts' else {}
    with pytest.raises(UserError, match=f'config.ndpdc.{field}'):
        methods.get('ndpdc').plan(config(**{f'ndpdc__{field}': value}, **side), 40)


# --- the query ------------------------------------------------------------------------


@functools.cache
def _query(method):
    return tiny.over_devices(method.query, 1)


def summed(method, coins, batch):
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (coins, batch))
    return tiny.vector(_query(method)(*stacked))


def units(method, number=6):
    data = method.config.data
    return canaries.batch(canaries.extremes(data, number), data, (number, 1))


def furthest(method, coins):
    """How far emptying a record moves an aggregate."""
    batch = units(method)
    whole, moves = summed(method, coins, batch), []
    for i in range(len(batch.labels)):
        padding = batch.is_padding_example.copy()
        padding[i] = True
        emptied = batch._replace(is_padding_example=padding)
        moves.append(np.linalg.norm(whole - summed(method, coins, emptied)))
    return max(moves)


@pytest.mark.parametrize('seed', range(4))
def test_an_emptied_record_moves_an_aggregate_by_at_most_one(seed):
    method = method_of(ndpdc__width=4, ndpdc__depth=2)
    # Or the bound, and so the noise, is larger than need be.
    assert 0.99 < furthest(method, audit.wild_coins(method, seed)) <= 1.0


def test_a_record_adds_to_its_own_class_alone():
    method = method_of()
    batch = units(method, 3)
    alone = batch._replace(is_padding_example=np.array([[True], [False], [True]]))
    table = summed(method, audit.wild_coins(method, 0), alone).reshape(3, -1)
    assert table[1].any()
    assert not table[[0, 2]].any()


def test_what_stands_in_padding_matters_not():
    method = method_of()
    coins, batch = audit.wild_coins(method, 0), units(method)
    padding = batch.is_padding_example.copy()
    padding[2:] = True
    batch = batch._replace(is_padding_example=padding)
    images = batch.images.copy()
    images[2:] = 255 - images[2:]
    other = batch._replace(images=images, labels=np.where(padding, 2, batch.labels))
    assert np.array_equal(summed(method, coins, batch), summed(method, coins, other))


def test_without_noise_nothing_is_clipped():
    method = method_of(sigma=0.0, privacy__epsilon=float('inf'))
    batch = units(method, 1)
    assert np.linalg.norm(summed(method, audit.wild_coins(method, 0), batch)) > 1.5


def test_a_row_that_is_longer_than_one_is_found_out(monkeypatch):
    monkeypatch.setattr(condensation, 'ROW_BOUND', 1.5)
    method = method_of(ndpdc__width=5)  # else the honest program is kept
    assert furthest(method, audit.wild_coins(method, 0)) > 1


@pytest.mark.slow
def test_the_audit_finds_no_fault_and_finds_a_missing_clip(monkeypatch):
    typed = config(ndpdc__width=4, ndpdc__depth=2)
    plan = tiny.plan(typed)
    (target,) = audit.audit_targets(typed, plan, [1])
    assert not tiny.audit_failures(target, plan)
    monkeypatch.setattr(condensation, 'ROW_BOUND', 1.5)
    (target,) = audit.audit_targets(typed, plan, [1])
    assert 'sensitivity' in tiny.audit_failures(target, plan)


# --- phase 1 --------------------------------------------------------------------------


def test_an_aggregate_is_the_mean_of_those_drawn_with_the_noise_of_its_step(tmp_path):
    run = tiny.run(tmp_path, config(), sigma=1.0)
    method = Condensation(run.config, run.plan)
    phase = AggregatePhase(run, method)
    found = run.train(phase)
    assert found.means.shape == (3, *method.table)
    for step in range(3):
        seed = run.keys.public('coins', step)
        assert np.array_equal(found.seeds[step], seed)
        draw = phase._draw(step)
        chosen = draw.indices[~draw.is_padding_example]
        held = records(run.data)
        batch = tiny.batch(held['images'][chosen], held['labels'][chosen])
        exact = summed(method, jax.jit(method.coins)(seed), batch)
        noise = found.means[step].ravel() * 8 / 3 - exact
        assert 0.5 < np.std(noise) < 1.5
        assert abs(np.mean(noise)) < 1


@pytest.fixture(scope='module')
def one(tmp_path_factory):
    """(run, its aggregates) on one device."""
    run = tiny.run(tmp_path_factory.mktemp('one'), config(), sigma=1.0)
    return run, released(run)


def test_every_aggregate_has_coins_a_draw_and_a_noise_key_of_its_own(one):
    run, seeds = one[0], one[1].seeds
    traced = audit.trace(run.config, run.plan, run.keys)
    noise, chosen = traced.keys[AGGREGATE], traced.draws[AGGREGATE].chosen
    assert len({key.tobytes() for key in noise}) == len(noise) == 3
    assert len({np.sort(each).tobytes() for each in chosen}) == 3
    assert len({seed.tobytes() for seed in seeds}) == 3
    halves = {half.tobytes() for key in noise for half in (key[:4], key[4:])}
    assert not halves & {seed.tobytes() for seed in seeds}


def test_chunks_and_devices_change_nothing(one, tmp_path, monkeypatch):
    two = released(tiny.run(tmp_path / 'two', config(), sigma=1.0, devices=2))
    # The last chunk is short.
    chunk = 'dpaf_jax.methods.embedding.ndpdc.aggregate.at_once'
    monkeypatch.setattr(chunk, lambda images: 5)
    chunked = released(tiny.run(tmp_path / 'chunked', config(), sigma=1.0))
    for other in (two, chunked):
        np.testing.assert_allclose(one[1].means, other.means, atol=1e-5)
        assert np.array_equal(one[1].seeds, other.seeds)


@pytest.mark.slow
# --- phase 2 --------------------------------------------------------------------------


def test_the_images_are_fitted_to_the_aggregates_and_no_record_is_read(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(Run, 'unrolls', property(lambda self: False))  # compiles sooner
    run = tiny.run(tmp_path, config(ndpdc__steps=20), sigma=1.0)
    method = Condensation(run.config, run.plan)
    found = released(run, method)
    hidden = dataclasses.replace(
        run.data, images=tiny.Untouchable(), labels=tiny.Untouchable()
    )
    blind = dataclasses.replace(run, data=hidden)
    phase = CondensePhase(blind, method, found)
    start, state = phase.init(), blind.train(phase)
    assert phase.charged(0) == {AGGREGATE: 3}
    assert state.steps == 20
    images = state.params['images']
    assert images.shape == (3, 8, 4, 4, 1)  # 2 of each class, in 2 x 2 parts
    assert np.abs(images).max() <= 1

    @jax.jit
    def loss(params):
        each = zip(found.seeds, found.means, strict=True)
        return sum(method.loss(params, method.coins(s), m) for s, m in each)

    assert loss(state.params) < loss(start.params)


def test_the_best_images_for_a_set_s_own_means_are_that_set():
    method = method_of(sigma=0.0, privacy__epsilon=float('inf'), ndpdc__width=8)

    @jax.jit
    def begun(key):
        params, coins = method.init(key).params, method.coins(jnp.asarray(SEED))
        shown = method.sampler.shown(params['images'].reshape(-1, 4, 4, 1))
        return params, coins, method.rows(coins, shown)

    params, coins, rows = begun(jax.random.key(1))
    means, loss = np.reshape(rows, (3, 8, -1)).mean(axis=1), jax.jit(method.loss)
    assert float(loss(params, coins, means)) == pytest.approx(0, abs=1e-6)
    assert float(loss(params, coins, means + 0.1)) > 1e-2


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path):
    whole = tiny.run(tmp_path / 'whole', config(), sigma=1.0)
    parts = tiny.run(tmp_path / 'parts', config(), sigma=1.0)
    expected = methods.train(whole)
    released(parts)  # what a stop between the phases leaves
    found = methods.train(parts)
    assert np.array_equal(expected['images'], found['images'])


# --- the release ----------------------------------------------------------------------


@pytest.fixture
def held():
    """Images that say who they are: of class k the n-th has the value (8 k + n) / 24."""
    sampler = condensed_sampler(config())
    values = np.arange(24, dtype=np.float32).reshape(3, 8, 1, 1, 1) / 24
    return sampler, {'images': np.broadcast_to(values, (3, 8, 4, 4, 1))}


def names(images):
    light = np.asarray(images, np.float32)[:, 0, 0, 0]
    return np.round((light / 127.5 - 1) * 24).astype(int)


def test_all_images_come_once_before_one_comes_twice(held):
    _, params = held
    plan = tiny.plan(config(), 1.0)
    release = Release(config(), plan.to_json(), params)
    images, labels = release.sample(24, seed=5)
    assert sorted(names(images)) == list(range(24))
    assert np.array_equal(names(images) // 8, labels)
    images, _ = release.sample(48, seed=6)
    assert sorted(names(images)) == sorted([*range(24), *range(24)])


def test_other_seeds_begin_elsewhere(held):
    _, params = held
    release = Release(config(), tiny.plan(config(), 1.0).to_json(), params)
    first = [names(release.sample(3, seed=seed)[0])[0] for seed in (1, 2)]
    assert first[0] != first[1]


def test_a_batch_has_no_image_twice_while_there_are_others(held):
    sampler, params = held
    labels = jnp.repeat(jnp.arange(3), 8)
    made = sampler.sample(params, jax.random.key(0), labels)
    value = np.round(np.asarray(made)[:, 0, 0, 0] * 24).astype(int)
    assert sorted(value) == list(range(24))


def test_whole_images_are_held_as_they_are():
    sampler = CondensedSampler((8, 8, 1), 3, 2, 1)
    params = sampler.init(jax.random.key(0))
    assert params['images'].shape == (3, 2, 8, 8, 1)
    made = sampler.nth(params, jnp.array([2]), jnp.array([3]))
    assert np.array_equal(made[0], params['images'][2, 1])


@pytest.mark.slow
def test_a_release_holds_the_images_alone_and_verifies(tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    small = {'aggregates': 2, 'batch_size': 8, 'width': 2, 'depth': 1, 'steps': 2}
    made = tiny_runs.one_shot(
        source, method='ndpdc', **{f'ndpdc__{n}': v for n, v in small.items()}
    )
    pipeline = Pipeline(made, tmp_path / 'run', entropy=tiny_runs.ENTROPY)
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
    release = load_release(tmp_path / 'run' / 'release')
    assert jax.tree.map(np.shape, release.params) == {'images': (2, 20, 8, 8, 1)}
    card = (tmp_path / 'run' / 'release' / 'README.md').read_text()
    assert 'It holds 40 images' in card
    checks = verify(tmp_path / 'run' / 'release').checks
    assert all(check.passed is not False for check in checks), checks
