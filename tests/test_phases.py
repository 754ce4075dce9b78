"""Contracts of the phases: the same run on 1 and 8 devices, unrolled, scanned, by hand."""

import functools
import itertools
import math
import tempfile

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from scipy import stats

from dpaf_jax import feed, parallel
from dpaf_jax.classifier import Classifier
from dpaf_jax.conv2_update import conv2_step
from dpaf_jax.feed import Feed, gather
from dpaf_jax.gan import Gan
from dpaf_jax.generator_update import generator_step
from dpaf_jax.generators import Generator
from dpaf_jax.methods import dpaf_phases
from dpaf_jax.methods.dpaf_phases import ClassifierPhase, GanPhase, TablePhase
from dpaf_jax.networks import make_networks
from dpaf_jax.privacy.noise import add_gaussian
from dpaf_jax.privacy.sampling import poisson_draw
from dpaf_jax.rows import make_row_layout
from dpaf_jax.run import Run

pytestmark = pytest.mark.usefixtures('quick_compilation')

# Plain SGD everywhere: Adam divides rounding by rounding where a gradient is 0.
SGD = {
    f'dpaf__{part}__{field}': value
    for part in ('classifier', 'conv2', 'head', 'generator')
    for field, value in (('optimizer', 'sgd'), ('learning_rate', 0.1))
}
SIGMA = 0.1
EACH_STEP = {'dpaf__asymmetry': 1, 'dpaf__n_critic': 1}  # a window is one step
MODES = {
    'canonical': {},
    'turns, groups, three losses': {
        **EACH_STEP,
        'dpaf__epochs': 0.1,
        'dpaf__batches': 'class_pure',
        'dpaf__classes_per_step': 1,
        'dpaf__batch_size': 3,
        'dpaf__conv2__gradient': 'group',
        'dpaf__taps': 'count,conv2',
        'dpaf__generator__loss_aggregate': 0.5,
        'dpaf__generator__loss_match': 2.0,
    },
    'all classes at once, cotangent': {
        **EACH_STEP,
        'dpaf__batches': 'class_pure',
        'dpaf__batch_size': 3,
        'dpaf__conv2__gradient': 'cotangent',
    },
    'as published': {'privacy__guarantee': 'as_published'},
    'one shot': {
        **tiny.ONE_SHOT,
        'dpaf__generator_steps': 2,
        'dpaf__taps': 'count,pixels,contrast,fourier,conv1,conv2',
    },
    'one shot, whitened': {**tiny.ONE_SHOT, 'dpaf__generator__whitenings': 1},
    'one shot, labelled': {
        **tiny.ONE_SHOT,
        'dpaf__classifier__private': 'labeller',
        'dpaf__taps': 'count,wavelet,labeller',
        'dpaf__generator__whitenings': 1,
    },
}


def make_gan(config, plan, devices=1):
    layout = make_row_layout(config)
    return Gan(make_networks(config), layout, config, plan, devices)


def gan_phase(devices=1, sigma=SIGMA, **fields):
    """(run, gan, phase, a start that costs no compilation)."""
    config = tiny.config(**{**SGD, **fields})
    folder = tempfile.gettempdir()  # nothing is written there
    run = tiny.run(folder, config, devices, sigma)
    gan = make_gan(config, run.plan, devices)
    kind = TablePhase if run.plan['dpagg'].sampling_prob == 1 else GanPhase
    return run, gan, kind(run, gan, None), tiny.state(gan, scale=0.3)


def train(run, phase, state, windows=math.inf):
    """The host state after the phase; replicas are checked on the way out."""
    placed, step = parallel.replicate(state, run.devices), 0
    while step < phase.total_steps and windows > 0:
        placed, step, _ = phase.window(placed, step)
        windows -= 1
    return parallel.unreplicate(placed)


@functools.cache
def trained(mode, devices=1, unrolls=True):
    """(start, end, gan) of a whole phase."""
    run, gan, phase, start = gan_phase(devices, **MODES[mode])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, 'unrolls', property(lambda self: unrolls))
        patch.setattr(feed, 'CHUNK', 2)
        return start, train(run, phase, start), gan


def assert_close(one, two, rtol=1e-3, atol=1e-4):
    leaves = jax.tree_util.tree_leaves_with_path(one)
    for (path, a), b in zip(leaves, jax.tree.leaves(two), strict=True):
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


def equal(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


# --- one device, eight devices --------------------------------------------------------


@pytest.mark.parametrize('mode', MODES)
def test_one_and_eight_devices_train_the_same_gan(mode):
    start, one, _ = trained(mode, 1)
    _, eight, _ = trained(mode, 8)
    assert_close(one, eight)
    # It did learn: what is compared is not the start.
    change = jax.tree.map(lambda a, b: np.abs(a - b).max(), start.average, one.average)
    assert max(jax.tree.leaves(change)) > 1e-3


@pytest.mark.parametrize('mode', ['canonical', 'one shot, whitened'])
def test_every_batch_of_fakes_is_dealt_to_the_devices(mode):
    one, eight = (batches_of_fakes(mode, devices) for devices in (1, 8))
    assert one and eight == [-(-size // 8) for size in one]


def batches_of_fakes(mode, devices):
    """How many fakes each call of G makes, in the order that a window is traced in."""
    run, _, phase, start = gan_phase(devices, **MODES[mode])
    sizes = []

    def note(call, args, kwargs, context):
        if isinstance(context.module, Generator) and context.method_name == '__call__':
            sizes.append(len(args[0]))
        return call(*args, **kwargs)

    with nn.intercept_methods(note):
        phase.window(parallel.replicate(start, run.devices), 0)
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize('devices', [2, 3, 4])  # no batch here can be split by three
@pytest.mark.parametrize('mode', MODES)
def test_any_number_of_devices_trains_the_same_gan(mode, devices):
    assert_close(trained(mode, 1)[1], trained(mode, devices)[1])


@pytest.mark.parametrize('mode', ['canonical', 'one shot'])
def test_scanned_and_unrolled_windows_train_the_same_gan(mode):
    assert_close(trained(mode)[1], trained(mode, unrolls=False)[1])


def test_a_whitened_part_has_an_optimiser_and_a_schedule_of_its_own():
    fields = {**MODES['one shot, whitened'], 'dpaf__generator_steps': 8}
    fields['dpaf__generator__optimizer'] = 'adam'
    fields['dpaf__generator__schedule'] = 'cosine'
    run, gan, phase, start = gan_phase(**fields)
    moments, _, schedule = train(run, phase, start).generator_optimizer
    assert (moments.count, schedule.count) == (4, 4)  # of eight steps in two parts
    assert gan.updates_per_part == 4


def test_a_whitened_run_that_stops_within_a_part_goes_on_with_its_metric():
    fields = {**MODES['one shot, whitened'], 'dpaf__generator_steps': 8}
    run, gan, phase, start = gan_phase(**fields)
    whole = train(run, phase, start)
    stopped = train(run, TablePhase(run, gan, None), start, windows=3)  # of four
    assert not equal(stopped.reference, stopped.average)
    assert not equal(stopped.reference, start.reference)
    placed = parallel.replicate(stopped, run.devices)
    placed, _, _ = TablePhase(run, gan, None).window(placed, 6)
    assert equal(parallel.unreplicate(placed), whole)


def test_noise_that_differs_between_devices_is_noticed(monkeypatch):
    def unlike(sums, key_data, noise_std):
        key_data = key_data + jnp.uint32(parallel.place()[0] == 3)
        return add_gaussian(parallel.total(sums), key_data, noise_std)

    monkeypatch.setattr('dpaf_jax.privacy.aggregation.noisy_total', unlike)
    run, _, phase, start = gan_phase(8, **MODES['one shot'])
    with pytest.raises(RuntimeError, match='replicas differ'):
        train(run, phase, start, windows=1)


# --- step by step ---------------------------------------------------------------------


def by_hand(run, gan, state):
    """Algorithm 1 with one compiled call per line; no window, no phase."""
    dpaf, keys, feed = run.config.dpaf, run.keys, Feed(run)

    def call(fn, *args):
        return jax.jit(jax.vmap(fn, axis_name=parallel.AXIS))(*args)

    def draw(name, step):
        m = run.plan[name]
        return feed.deal_one(poisson_draw(m, run.plan.num_examples, keys, step))

    state = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], state)
    turn = np.ones((1, 1), bool)
    for step in range(gan.releases):
        now = dpaf_phases.StepKeys(
            *(keys.noise(name, step)[None] for name in ('dpagg', 'fake')),
            keys.noise('conv2', step // dpaf.asymmetry)[None],
            keys.public('step', step)[None],
        )
        units = call(gather, feed.data, draw('dpagg', step))
        sums = call(gan.query, state.params, units)
        state = call(gan.release, state, sums, turn, now.real_noise)
        before = state
        state, _ = call(gan.head_step, state, turn, now)
        assert_only_the_head_has_changed(before, state)
        if (step + 1) % dpaf.n_critic == 0:
            state, _ = call(functools.partial(generator_step, gan), state, now)
        if (step + 1) % dpaf.asymmetry == 0:
            units = call(gather, feed.data, draw('conv2', step // dpaf.asymmetry))
            update = functools.partial(conv2_step, gan)
            state = call(update, state, units, now)
    return jax.tree.map(lambda leaf: leaf[0], state)


def assert_only_the_head_has_changed(before, after):
    assert not equal(before.params['head'], after.params['head'])
    rest = before.params | {'head': after.params['head']}
    assert equal(
        before._replace(params=rest, head_optimizer=after.head_optimizer), after
    )


def test_a_window_equals_its_single_steps_and_only_the_head_reads_dpagg():
    fields = MODES['canonical']
    run, gan, _, start = gan_phase(1, **fields)
    assert gan.releases == 2
    assert_close(by_hand(run, gan, start), trained('canonical')[1])


def test_the_length_of_a_window_does_not_change_a_one_shot_run(monkeypatch):
    monkeypatch.setattr(dpaf_phases, 'GENERATOR_WINDOW', 1)
    run, _, phase, start = gan_phase(1, **MODES['one shot'])
    assert phase._length == 1
    assert_close(train(run, phase, start), trained('one shot')[1])


# --- what stays as it is --------------------------------------------------------------


@pytest.mark.parametrize('mode', MODES)
def test_phase_2_never_changes_conv1_nor_random_features(mode):
    start, end, _ = trained(mode)
    frozen = {'conv1', 'contrast', 'fourier', 'labeller'} & set(start.params)
    if 'one shot' in mode:
        frozen |= {'conv2', 'head'}
    for name in frozen:
        assert equal(start.params[name], end.params[name])
    for name in set(start.params) - frozen:
        assert not equal(start.params[name], end.params[name])


@pytest.mark.parametrize('mode', MODES)
def test_everything_that_persists_is_finite(mode):
    leaves = jax.tree.leaves(trained(mode)[1])
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)


def test_aggregates_of_an_older_conv2_are_dropped():
    _, end, _ = trained('canonical')
    assert not np.any(end.pooled)
    assert not np.any(end.releases)
    assert np.any(end.latest)


def test_aggregates_are_pooled_while_conv2_stays():
    _, end, _ = trained('one shot')
    np.testing.assert_allclose(end.pooled, end.latest)
    assert np.array_equal(end.releases, np.ones(3))


def test_the_generators_average_lags_behind_it():
    start, end, _ = trained('one shot')
    assert end.generator_steps == 2
    last, mean, first = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
        for tree in (end.generator, end.average, start.generator)
    )
    assert 0 < np.linalg.norm(mean - last) < np.linalg.norm(first - last)


# --- DPAGG over the whole data set ----------------------------------------------------


@pytest.mark.parametrize('devices', [1, 8])
def test_one_shot_dpagg_is_the_clipped_sum_over_each_class(devices, monkeypatch):
    monkeypatch.setattr(feed, 'CHUNK', 3)  # 40 records: the last chunk is short
    run, gan, phase, start = gan_phase(devices, sigma=0.0, **MODES['one shot'])
    state = phase._release(parallel.replicate(start, run.devices), 0)
    made = parallel.unreplicate(state.latest) * np.asarray(gan.expected_counts)

    images = run.data.images.astype(np.float32) / 127.5 - 1
    rows = np.asarray(
        jax.jit(gan.image_rows)(start.params, images, run.data.labels), np.float64
    )
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= np.minimum(1, gan.rows.bound / lengths)
    expected = [rows[run.data.labels == label].sum(axis=0) for label in range(3)]
    np.testing.assert_allclose(made, expected, rtol=2e-3, atol=2e-3)


def test_classes_in_turn_are_released_one_after_the_other():
    fields = MODES['one shot'] | {'dpaf__classes_per_step': 1}
    run, _, phase, start = gan_phase(1, **fields)
    assert phase.total_steps == 3 * run.config.dpaf.generator_steps
    placed = parallel.replicate(start._replace(latest=0 * start.latest), run.devices)
    for release in range(3):
        placed = phase._release(placed, release)
        latest = parallel.unreplicate(placed.latest)
        assert np.any(latest, axis=1).tolist() == [c <= release for c in range(3)]
    assert parallel.unreplicate(placed.releases).tolist() == [1, 1, 1]


# --- draws and turns ------------------------------------------------------------------


def schedule(monkeypatch, **fields):
    """Runs a phase's windows without compiling them; returns every draw asked for."""
    asked = []

    def record(mechanism, eligible, keys, step):
        asked.append((mechanism.name, step, eligible))
        return poisson_draw(mechanism, eligible, keys, step)

    run, gan, phase, start = gan_phase(1, **fields)
    monkeypatch.setattr(dpaf_phases, 'poisson_draw', record)
    monkeypatch.setattr(GanPhase, '_fn', lambda *_: lambda state, *_: (state, {}))
    train(run, phase, start)
    return run, gan, asked


@pytest.mark.parametrize(
    'mode',
    ['canonical', 'turns, groups, three losses', 'all classes at once, cotangent'],
)
def test_every_draw_of_the_plan_is_made_once(mode, monkeypatch):
    run, gan, asked = schedule(monkeypatch, **MODES[mode])
    draws = [(name, step) for name, step, _ in asked]
    steps = {'dpagg': gan.releases, 'conv2': run.plan['conv2'].steps}
    expected = {(name, step) for name in steps for step in range(steps[name])}
    assert len(draws) == len(expected)
    assert set(draws) == expected


def test_each_class_has_its_planned_turns_and_no_other(monkeypatch):
    run, _, asked = schedule(
        monkeypatch, **MODES['turns, groups, three losses'] | {'dpaf__epochs': 1.0}
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
    steps = [phase._keys(t) for t in range(gan.releases)]
    assert len(steps) == 40
    real = {tuple(k.real_noise) for k in steps}
    fake = {tuple(k.fake_noise) for k in steps}
    conv2 = [tuple(k.conv2_noise) for k in steps]
    assert len(real) == len(fake) == len(steps)
    assert len(set(conv2)) == run.plan['conv2'].steps == 20
    assert conv2[::2] == conv2[1::2]  # one update a window of mu steps
    for one, two in itertools.combinations((real, fake, set(conv2)), 2):
        assert not one & two
    assert not fake & noise_keys(run)


def test_no_two_tables_have_the_same_noise():
    run, gan, phase, start = gan_phase(
        sigma=1e3, **MODES['one shot'] | {'dpaf__epochs': 2.0}
    )
    assert gan.releases == 2
    state = parallel.replicate(start, run.devices)
    tables = []
    for release in range(2):
        state = phase._release(state, release)
        table = np.asarray(parallel.unreplicate(state).latest)
        tables.append((table * gan.expected_counts).ravel())  # the sum is lost in it
    assert abs(np.corrcoef(*tables)[0, 1]) < 5 / math.sqrt(table.size)


def test_post_processing_holds_no_key_of_a_mechanism():
    run, _, phase, _ = gan_phase(**MODES['one shot'])
    secret = noise_keys(run)
    ticks = [phase._tick_keys(t) for t in range(50)]
    for keys in ticks:
        for field in (keys.real_noise, keys.fake_noise, keys.conv2_noise):
            assert tuple(field) not in secret
        halves = keys.public.reshape(2, 2)
        assert not {tuple(half) for half in halves} & secret
    assert len({tuple(keys.fake_noise) for keys in ticks}) == 50
    assert len({tuple(keys.public) for keys in ticks}) == 50


def test_fake_aggregates_have_the_noise_law_of_real_ones_and_other_noise():
    _, gan, phase, start = gan_phase(
        sigma=1e3, **MODES['one shot'] | {'dpaf__taps': 'fourier', 'dpaf__epochs': 2.0}
    )

    def noises(state, keys):
        nothing = jnp.zeros_like(state.latest)
        real = gan.release(state, nothing, jnp.ones(3, bool), keys.real_noise).latest
        made = [gan.fake_aggregate(state, state.generator, keys, u) for u in (0, 3)]
        return [x * gan.expected_counts / 1e3 for x in (real, *made)]

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
        {'dpaf__batch_size': 8},
        {'dpaf__batch_size': 4, 'dpaf__batches': 'class_pure'},
        MODES['one shot'],
    ],
)
def test_counts_of_fakes_have_the_law_of_real_draws(fields):
    _, gan, phase, start = gan_phase(
        sigma=1e-6, **fields | {'dpaf__taps': 'count,conv2'}
    )
    prob, expected = gan.dpagg.sampling_prob, gan.expected_counts[:, 0]

    def counts(public):
        keys = phase._keys(0)._replace(public=public)
        table = gan.fake_aggregate(start, start.generator, keys)
        return gan.rows.part(table, 'count').ravel() * expected

    coins = jax.random.bits(jax.random.key(0), (1, 1000, 4), jnp.uint32)
    many = jax.vmap(lambda c: jax.lax.map(counts, c), axis_name='devices')
    made = np.asarray(jax.jit(many)(coins)[0])
    spread = np.sqrt(expected * (1 - prob))
    np.testing.assert_allclose(made, made.round(), atol=1e-3)
    # A third of 40 records is a whole number here, hence the tolerance.
    np.testing.assert_allclose(made.mean(axis=0), expected, rtol=0.05)
    np.testing.assert_allclose(made.std(axis=0), spread, rtol=0.1, atol=1e-3)


# --- phase 1 --------------------------------------------------------------------------

CLASSIFIERS = {
    'all': {},
    'groups, random head': {
        'dpaf__classifier__private': 'conv1',
        'dpaf__classifier__unit': 'group',
    },
    'as published': {'privacy__guarantee': 'as_published'},
}


@functools.cache
def trained_classifier(mode, devices=1, window=2, unrolls=True):
    """(start, end, classifier) of two steps."""
    config = tiny.config(**SGD, **CLASSIFIERS[mode])
    run = tiny.run(tempfile.gettempdir(), config, devices, SIGMA)
    classifier = Classifier(make_networks(config), config, run.plan)
    start = tiny.state(classifier, scale=0.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, 'unrolls', property(lambda self: unrolls))
        patch.setattr(dpaf_phases, 'WINDOW', window)
        phase = ClassifierPhase(run, classifier)
        return start, train(run, phase, start, windows=2 / window), classifier


@pytest.mark.parametrize('mode', CLASSIFIERS)
def test_one_and_eight_devices_train_the_same_classifier(mode):
    start, one, _ = trained_classifier(mode)
    assert_close(one, trained_classifier(mode, 8)[1])
    assert not equal(start.params['conv1'], one.params['conv1'])


@pytest.mark.slow
@pytest.mark.parametrize('devices', [2, 3, 4])
@pytest.mark.parametrize('mode', CLASSIFIERS)
def test_any_number_of_devices_trains_the_same_classifier(mode, devices):
    one, many = trained_classifier(mode)[1], trained_classifier(mode, devices)[1]
    assert_close(one, many)


def test_a_window_of_the_classifier_equals_single_steps_and_a_scan():
    _, window, _ = trained_classifier('all')
    assert_close(window, trained_classifier('all', window=1)[1])
    assert_close(window, trained_classifier('all', unrolls=False)[1])


def test_a_random_head_stays_random():
    start, end, classifier = trained_classifier('groups, random head')
    assert classifier.trained == ('conv1',)
    for name in ('conv2', 'head'):
        assert equal(start.params[name], end.params[name])


def test_without_a_guarantee_the_whole_classifier_learns():
    for mode in ('all', 'as published'):
        start, end, _ = trained_classifier(mode)
        for name in ('conv1', 'conv2', 'head'):
            assert not equal(start.params[name], end.params[name])
