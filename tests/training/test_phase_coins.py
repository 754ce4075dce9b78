"""Which records, keys and noise the steps of phase 2 get: those of the plan, each once."""

import itertools
import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from scipy import stats
from tiny_phases import MODES, gan_phase, train

from dpaf_jax.methods.dpaf.phase2.batch_phase import BatchPhase
from dpaf_jax.methods.dpaf.phase2.gan import Use
from dpaf_jax.privacy import noise
from dpaf_jax.privacy.sampling import poisson_draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training import input_pipeline

# --- draws and turns ------------------------------------------------------------------


def schedule(monkeypatch, **fields):
    """Runs a phase's windows without compiling them; returns every draw asked for."""
    asked = []

    def record(mechanism, eligible, keys, step):
        asked.append((mechanism.name, step, eligible))
        return poisson_draw(mechanism, eligible, keys, step)

    monkeypatch.setattr(input_pipeline, 'poisson_draw', record)
    monkeypatch.setattr(  # before a phase is made, which keeps it
        BatchPhase, '_compile', lambda *_: lambda state, *_: (state, {})
    )
    run, gan, phase, start = gan_phase(1, **fields)
    train(run, phase, start)
    return run, gan, asked


@pytest.mark.parametrize(
    'mode',
    [
        *('canonical', 'turns, three losses'),
        'all classes at once, cotangent',
        'conv1 with D',
    ],
)
def test_every_draw_of_the_plan_is_made_once(mode, monkeypatch):
    run, gan, asked = schedule(monkeypatch, **MODES[mode])
    draws = [(name, step) for name, step, _ in asked]
    steps = {'dpagg': gan.schedule.dpagg_steps}
    steps |= {name: run.plan[name].steps for name in gan.updates}
    expected = {(name, step) for name in steps for step in range(steps[name])}
    assert len(draws) == len(expected)
    assert set(draws) == expected


def test_each_class_has_its_planned_turns_and_no_other(monkeypatch):
    run, _, asked = schedule(
        monkeypatch, **MODES['turns, three losses'] | {'dpaf__epochs': 1.0}
    )
    turns = np.zeros(3, int)
    for name, _, eligible in asked:
        if name == 'conv2':
            assert eligible == tiny.NUM_EXAMPLES
            continue
        classes = set(run.data.labels[eligible].tolist())
        assert len(classes) == 1
        assert len(eligible) == np.sum(run.data.labels == min(classes))
        turns[min(classes)] += 1
    assert turns.tolist() == [run.plan['dpagg'].steps] * 3


def test_published_runs_draw_no_poisson_batches(monkeypatch):
    _, _, asked = schedule(monkeypatch, **MODES['as published'])
    assert not asked


@pytest.mark.parametrize('classes_per_step', [0, 1])
def test_progress_never_understates_what_a_class_has_spent(classes_per_step):
    fields = {'dpaf__batches': 'class_pure', 'dpaf__classes_per_step': classes_per_step}
    run, _, phase, _ = gan_phase(**fields)
    turns = 3 if classes_per_step else 1
    for step in range(phase.total_steps + 1):
        assert phase.charged(step)['dpagg'] == math.ceil(step / turns)
    done = phase.charged(phase.total_steps)
    assert done == {m.name: m.steps for m in run.plan.mechanisms}


def test_progress_of_a_one_shot_run_charges_its_release_at_once():
    _, _, phase, _ = gan_phase(**MODES['one shot'])
    assert phase.charged(0)['dpagg'] == 0
    assert phase.charged(1)['dpagg'] == phase.charged(2)['dpagg'] == 1


# --- keys -----------------------------------------------------------------------------


def noise_keys(run):
    """Every key of a mechanism in the plan, and then some."""
    return {
        tuple(run.keys.noise(name, step))
        for name in ('conv1', 'conv2', 'dpagg')
        for step in range(200)
    }


def test_each_release_has_a_key_of_its_own_that_no_fake_shares():
    run, gan, phase, _ = gan_phase(**MODES['canonical'], dpaf__epochs=4.0)
    steps = [phase._keys(t) for t in range(gan.schedule.dpagg_steps)]
    assert len(steps) == 40
    real = {tuple(k.real_noise) for k in steps}
    fake = {tuple(k.fake_noise) for k in steps}
    conv2 = [tuple(k.update_noise['conv2']) for k in steps]
    assert len(real) == len(fake) == len(steps)
    assert len(set(conv2)) == run.plan['conv2'].steps == 20
    assert conv2[::2] == conv2[1::2]  # one update a window of mu steps
    for one, two in itertools.combinations((real, fake, set(conv2)), 2):
        assert not one & two
    assert not fake & noise_keys(run)


def keys_used(phase, run, start):
    """The key of each noise that the first window makes, as its program reads them."""
    used, make = [], noise._noise

    def noted(sums, key_data, *rest):
        jax.debug.callback(lambda key: used.append(tuple(key.tolist())), key_data)
        return make(sums, key_data, *rest)

    with mock.patch.object(noise, '_noise', noted):
        state, _, _ = phase.window(parallel.replicate(start, run.devices), 0)
        jax.block_until_ready(state)
        jax.effects_barrier()
    return used


@pytest.mark.parametrize('mode', ['canonical', 'conv1 with D'])
def test_a_window_uses_each_key_once_and_those_of_the_plan(mode):
    run, gan, phase, start = gan_phase(**MODES[mode])
    used = keys_used(phase, run, start)
    assert len(used) == len(set(used))
    steps = gan.config.dpaf.asymmetry
    charged = {tuple(run.keys.noise('dpagg', t)) for t in range(steps)}
    charged |= {tuple(run.keys.noise(name, 0)) for name in gan.updates}
    assert charged <= set(used)
    assert len(set(used) & noise_keys(run)) == steps + len(gan.updates)


def test_no_two_tables_have_the_same_noise():
    run, gan, phase, start = gan_phase(
        sigma=1e3, **MODES['one shot'] | {'dpaf__epochs': 2.0}
    )
    assert gan.schedule.dpagg_steps == 2
    state = parallel.replicate(start, run.devices)
    tables = []
    for release in range(2):
        state = phase._release(state, release)
        table = np.asarray(parallel.unreplicate(state).latest)
        tables.append(
            (table * gan.schedule.expected_counts).ravel()
        )  # the sum is lost in it
    assert abs(np.corrcoef(*tables)[0, 1]) < 5 / math.sqrt(table.size)


def test_post_processing_holds_no_key_of_a_mechanism():
    run, _, phase, _ = gan_phase(**MODES['one shot'])
    secret = noise_keys(run)
    halves = {half for key in secret for half in (key[:4], key[4:])}
    ticks = [phase._tick_keys(t) for t in range(50)]
    for keys in ticks:
        assert not keys.update_noise and keys.real_noise is None
        assert tuple(keys.fake_noise) not in secret
        assert tuple(keys.public) not in halves
    assert len({tuple(keys.fake_noise) for keys in ticks}) == 50
    assert len({tuple(keys.public) for keys in ticks}) == 50


def test_fake_aggregates_have_the_noise_law_of_real_ones_and_other_noise():
    _, gan, phase, start = gan_phase(
        sigma=1e3, **MODES['one shot'] | {'dpaf__taps': 'fourier', 'dpaf__epochs': 2.0}
    )

    def noises(state, keys):
        nothing = jnp.zeros_like(state.latest)
        real = gan.privatised(state, nothing, jnp.ones(3, bool), keys.real_noise).latest
        made = [
            gan.fake_aggregates(state, state.generator.params, keys, *use)
            for use in ((Use.HEAD, 0), (Use.HEAD, 1), (Use.ITS_AGGREGATES, 0))
        ]
        return [x * gan.schedule.expected_counts / 1e3 for x in (real, *made)]

    keys = [phase._keys(t) for t in (0, 1)]
    fn = jax.jit(jax.vmap(lambda k: noises(start, k), axis_name=parallel.AXIS))
    made = [fn(jax.tree.map(lambda leaf: np.asarray(leaf)[None], k)) for k in keys]
    found = [np.asarray(x).ravel() for step in made for x in step]
    for values in found:
        total = np.sum(np.square(values, dtype=np.float64))
        low, high = stats.chi2.ppf([1e-5, 1 - 1e-5], values.size)
        assert low < total < high
    for one, two in itertools.combinations(found, 2):
        assert abs(np.corrcoef(one, two)[0, 1]) < 5 / math.sqrt(one.size)


@pytest.mark.parametrize(
    'fields',
    [
        pytest.param({'dpaf__batch_size': 8}, marks=pytest.mark.slow),
        {'dpaf__batch_size': 4, 'dpaf__batches': 'class_pure'},
        MODES['one shot'],
    ],
)
def test_counts_of_fakes_have_the_law_of_real_draws(fields):
    _, gan, phase, start = gan_phase(
        sigma=1e-6, **fields | {'dpaf__taps': 'count,conv2'}
    )
    prob, expected = (
        gan.schedule.dpagg.sampling_prob,
        gan.schedule.expected_counts[:, 0],
    )

    def counts(public):
        keys = phase._keys(0)._replace(public=public)
        table = gan.fake_aggregates(start, start.generator.params, keys, Use.HEAD)
        return gan.taps.part(table, 'count').ravel() * expected

    rng = jax.random.bits(jax.random.key(0), (1, 1000, 4), jnp.uint32)
    many = jax.vmap(lambda c: jax.lax.map(counts, c), axis_name='devices')
    made = np.asarray(jax.jit(many)(rng)[0])
    spread = np.sqrt(expected * (1 - prob))
    np.testing.assert_allclose(made, made.round(), atol=1e-3)
    # A third of 40 records is a whole number here, hence the tolerance.
    np.testing.assert_allclose(made.mean(axis=0), expected, rtol=0.05)
    np.testing.assert_allclose(made.std(axis=0), spread, rtol=0.1, atol=1e-3)


def test_fakes_are_as_many_as_reals_where_batches_are_of_one_size():
    """As printed: else how many they are tells fakes from reals."""
    fields = {'privacy__guarantee': 'as_published', 'dpaf__taps': 'count,conv2'}
    _, gan, phase, start = gan_phase(sigma=1e-6, **fields)

    def counts(public):
        keys = phase._keys(0)._replace(public=public)
        table = gan.fake_aggregates(start, start.generator.params, keys, Use.HEAD)
        return (
            gan.taps.part(table, 'count').ravel() * gan.schedule.expected_counts[:, 0]
        )

    rng = jax.random.bits(jax.random.key(0), (1, 20, 4), jnp.uint32)
    many = jax.vmap(lambda c: jax.lax.map(counts, c), axis_name='devices')
    made = np.asarray(jax.jit(many)(rng)[0])
    np.testing.assert_allclose(made, gan.schedule.expected_counts.ravel()[0], rtol=1e-4)
