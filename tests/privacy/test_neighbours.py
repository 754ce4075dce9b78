"""The neighbour that occurs: data arrays that lack one record, through the package's own path.

Draw, feed, gather and query are those of training. Without the record the arrays are a row
shorter, its followers' rows are others, and so are the slots: a draw is one of others' coins,
and only its law is the same. So a draw is made with the record and mapped to the arrays
without it, in other slots; where everybody is drawn, each data set has a draw of its own.
"""

import dataclasses
import functools
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from benchmarks import probe
from dpaf_jax.audit.harness import wild_state
from dpaf_jax.audit.methods.adversarial import wild_networks
from dpaf_jax.methods.dp_gan import gan as dp_gan
from dpaf_jax.methods.dp_gan.dp_cgan import DpCgan
from dpaf_jax.methods.dp_gan.gan import DpGan
from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.phase1.classifier import Classifier
from dpaf_jax.methods.dpaf.phase1.labeller import Labeller
from dpaf_jax.methods.dpaf.phase2.conv2_update import conv2_query
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpba_wgan import critic
from dpaf_jax.methods.dpba_wgan.critic import DpbaWgan
from dpaf_jax.methods.dpgen import score_matching
from dpaf_jax.methods.dpgen.score_matching import make_score_matching
from dpaf_jax.methods.gs_wgan.phase import GsWganPhase
from dpaf_jax.methods.gs_wgan.turn import GsWgan
from dpaf_jax.methods.p3gm import decoder
from dpaf_jax.methods.p3gm.decoder import PhasedVae
from dpaf_jax.privacy import keys
from dpaf_jax.privacy.sampling import Draw, poisson_draw
from dpaf_jax.runtime import parallel
from dpaf_jax.training import input_pipeline
from dpaf_jax.training.input_pipeline import (
    Feed,
    every_feature,
    every_record,
    gather,
)
from dpaf_jax.training.run import Run

N = tiny.NUM_EXAMPLES
KEY = np.arange(4, dtype=np.uint32)
CLIP = 0.02


class Case(NamedTuple):
    """A mechanism's query: of a public state and units; and what it reads for images."""

    mechanism: Any
    state: Any
    query: Any
    features: Any = None


def adversarial(make):
    def case(config, plan, number):
        method = make(config, plan, number)
        shapes = jax.eval_shape(method.adversaries.init, jax.random.key(0))
        state = wild_networks(shapes, ['discriminator', 'generator'], 2)

        def query(state, batch):
            return method.query(method.adversaries.own(state), batch, KEY)

        return Case(plan.mechanisms[0], state, query)

    return case


def dpgen(config, plan, number):
    matching = make_score_matching(config, plan)

    def query(params, batch):
        return matching.query(params, matching.shots(batch, KEY))

    return Case(plan['score'], tiny.state(matching, 1).params, query)


def p3gm(config, plan, number):
    vae = PhasedVae(config, plan)
    shapes = jax.eval_shape(
        lambda key: vae.init(key, vae.encoder.init()), jax.random.key(0)
    )
    state = wild_state(shapes, ['moments', 'vae'], 2)
    return Case(plan['decoder'], state, lambda s, batch: vae.query(s, batch, KEY))


def phase1(config, plan, number):
    classifier = Classifier(make_networks(config), config, plan)
    return Case(plan['conv1'], tiny.state(classifier, 1).params, classifier.query)


def labeller(config, plan, number):
    made = Labeller(config, plan)
    state = tiny.state(made, 1).params
    return Case(plan['labeller'], state, made.query, made.features)


def phase2(name, config, plan, number):
    gan = Gan(config, plan, number)
    state = tiny.state(gan, 1)
    if name in ('conv1', 'conv2'):
        return Case(plan[name], state, functools.partial(conv2_query, gan, name=name))
    return Case(plan['dpagg'], state.params, gan.aggregator.query)


CASES = {
    'conv1': (phase1, {'dpaf__classifier__l2_clip_norm': CLIP}),
    'labeller': (labeller, tiny.LABELLED),
    'conv2': (functools.partial(phase2, 'conv2'), {'dpaf__conv2__l2_clip_norm': CLIP}),
    'conv2 with conv1': (
        functools.partial(phase2, 'conv2'),
        {
            'dpaf__conv2__l2_clip_norm': CLIP,
            'dpaf__conv2__with_conv1': True,
            'dpaf__classifier__private': 'none',
        },
    ),
    'conv1 with D': (
        functools.partial(phase2, 'conv1'),
        {
            'dpaf__classifier__l2_clip_norm': CLIP,
            'dpaf__classifier__private': 'discriminator',
        },
    ),
    'dpagg': (functools.partial(phase2, 'dpagg'), {}),
    'dp_gan': (adversarial(DpGan), {'method': 'dp_gan', 'dp_gan__l2_clip_norm': CLIP}),
    'dp_cgan': (
        adversarial(DpCgan),
        {'method': 'dp_cgan', 'dp_cgan__l2_clip_norm': CLIP},
    ),
    'dpba_wgan': (
        adversarial(DpbaWgan),
        {'method': 'dpba_wgan', 'dpba_wgan__l2_clip_norm': CLIP},
    ),
    'dpgen': (dpgen, {'method': 'dpgen', 'dpgen__l2_clip_norm': CLIP}),
    'p3gm': (p3gm, {'method': 'p3gm', 'p3gm__l2_clip_norm': CLIP}),
}
# Of a case beside them.
VARIANTS = 'conv2 with conv1', 'conv1 with D', 'dp_cgan', 'dpba_wgan'
OWN_COINS = {
    'dp_gan': dp_gan,
    'dpba_wgan': critic,
    'dpgen': score_matching,
    'p3gm': decoder,
}


# --- the two data sets ----------------------------------------------------------------


def filtered(config, number=N):
    """A quarter of the records is empty: a row of the arrays is not a record's index."""
    data = tiny.dataset(config, number)
    return keep(data, np.arange(number) % 4 != 1)


def keep(data, there):
    names = 'images', 'labels', 'index'
    kept = {name: getattr(data, name)[there] for name in names}
    return dataclasses.replace(data, **kept)


def without(data, row):
    return keep(data, np.arange(len(data.labels)) != row)


def mapped(draw, row):
    """The draw of the same others, from arrays without `row` and in other slots."""
    left = np.roll(draw.indices, 3, axis=0)
    blank = np.roll(draw.is_padding_example, 3, axis=0) | (left == row)
    return Draw(np.where(blank, 0, left - (left > row)).astype(np.int32), blank)


@functools.cache
def built(name, number):
    make, fields = CASES[name]
    config = tiny.config(**fields)
    run = dataclasses.replace(tiny.run('unused', config, number), data=filtered(config))
    case = make(config, run.plan, number)

    def summed(state, data, draw):
        return parallel.total(case.query(state, gather(data, draw)))

    return run, case, parallel.pmapped(summed, run.devices)


def summed(name, number, data, draw):
    run, case, query = built(name, number)
    feed = Feed(dataclasses.replace(run, data=data), case.features, case.state)
    state = parallel.replicate(case.state, run.devices)
    return tiny.vector(
        parallel.unreplicate(query(state, feed.data, feed.deal_one(draw)))
    )


def furthest(name, number=1, rows=(0, 7, 29)):
    """(where drawn, where not, where all are) how far removing a record moves the sum."""
    run, case, _ = built(name, number)
    data, step = run.data, 1
    m = dataclasses.replace(case.mechanism, capacity=N)  # so that one program does both
    everybody = dataclasses.replace(m, sampling_prob=1.0)
    drawn, not_drawn, always = [0.0], [0.0], []
    for row in rows:
        rest = without(data, row)
        draw = poisson_draw(m, len(data.labels), run.keys, step)
        far = summed(name, number, data, draw)
        far = far - summed(name, number, rest, mapped(draw, row))
        is_in = row in draw.indices[~draw.is_padding_example]
        (drawn if is_in else not_drawn).append(np.linalg.norm(far))
        sums = [
            summed(
                name, number, d, poisson_draw(everybody, len(d.labels), run.keys, step)
            )
            for d in (data, rest)
        ]
        always.append(np.linalg.norm(sums[0] - sums[1]))
        step += 1
    return max(drawn), max(not_drawn), max(always)


# --- sensitivity ----------------------------------------------------------------------


@pytest.mark.parametrize('number', [1, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    'name',
    [pytest.param(n, marks=[pytest.mark.slow] * (n in VARIANTS)) for n in CASES],
)
def test_arrays_without_a_record_move_a_sum_by_its_contribution_alone(name, number):
    sensitivity = built(name, number)[1].mechanism.l2_sensitivity
    drawn, not_drawn, always = furthest(name, number)
    assert drawn <= sensitivity and not_drawn == 0
    assert 0.1 * sensitivity < always <= sensitivity


def by_slot(key, index):
    """The planted fault: a slot's key, whoever lies in it."""
    return keys.record_keys(key, jax.numpy.arange(len(index)))


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(n, marks=[pytest.mark.slow] * (n in ('dpba_wgan', 'dpgen')))
        for n in OWN_COINS
    ],
)
def test_coins_of_slots_are_found_out(name):
    sensitivity = built(name, 1)[1].mechanism.l2_sensitivity
    built.cache_clear()
    with mock.patch.object(OWN_COINS[name], 'record_keys', by_slot):
        _, not_drawn, always = furthest(name)
    built.cache_clear()
    assert not_drawn > 0 and always > sensitivity


def test_images_that_are_sent_move_it_as_little():
    with mock.patch.object(input_pipeline, 'SHARE', 0.0):
        built.cache_clear()
        drawn, not_drawn, always = furthest('dp_gan', 8)
    built.cache_clear()
    assert drawn <= CLIP and not_drawn == 0 and always <= CLIP


# --- coins of records -----------------------------------------------------------------


@pytest.mark.parametrize('number', [1, 8])
def test_a_records_coins_are_its_own_in_any_slot_among_any_number(number):
    index = np.array([3, 0, 39, 1, 7, 8, 20, 5], np.int32)

    def drawn(index):
        made = keys.record_keys(KEY, index)
        return keys.own_coins(jax.random.normal, made, 2, 3)

    alone = {i: np.asarray(drawn(np.array([i], np.int32)))[0] for i in index.tolist()}
    assert len({value.tobytes() for value in alone.values()}) == len(index)
    for order in (index, index[::-1], np.repeat(index, 3)):
        dealt = order.reshape(number, -1)
        devices = jax.local_devices()[:number]
        found = np.asarray(parallel.pmapped(drawn, devices)(dealt)).reshape(-1, 2, 3)
        for i, value in zip(order.tolist(), found, strict=True):
            np.testing.assert_array_equal(value, alone[i])


def test_another_step_or_another_record_has_other_coins():
    one, other = (keys.record_keys(k, np.arange(50)) for k in (KEY, KEY[::-1]))
    both = np.concatenate([jax.random.key_data(k) for k in (one, other)])
    assert len(np.unique(both, axis=0)) == 100


def test_a_missing_record_moves_nobody_to_another_critic():
    config = tiny.config(method='gs_wgan')
    run = tiny.run('unused', config)
    data, method = filtered(config), GsWgan(config, run.plan, 1)

    def critics(data):
        own = dataclasses.replace(run, data=data)
        owner = GsWganPhase(own, method)._owner
        return dict(zip(data.index.tolist(), owner.tolist(), strict=True))

    whole = critics(data)
    assert set(whole.values()) == set(range(method.critics))
    for row in range(len(data.labels)):
        rest = critics(without(data, row))
        assert rest.items() < whole.items() and len(rest) == len(whole) - 1


# --- what is computed -----------------------------------------------------------------


@pytest.mark.parametrize('number', [1, 8])
def test_a_pass_over_all_records_leaves_the_slot_of_a_missing_one_empty(number):
    config = tiny.config(method='dp_merf')
    run = tiny.run('unused', config, number)
    whole, row = filtered(config), 7
    gone = whole.index[row]
    # Of 8 x 8 two at a time.
    with mock.patch.multiple(input_pipeline, CHUNK=8, CHUNK_SIDE=4):
        passes = [
            list(every_record(dataclasses.replace(run, data=data)))
            for data in (whole, without(whole, row))
        ]
    assert len(passes[0]) == len(passes[1]) == -(-N // (2 * number))
    seen = set()
    for one, other in zip(*passes, strict=True):
        np.testing.assert_array_equal(one.index, other.index)
        left = ~other.is_padding_example
        np.testing.assert_array_equal(
            left, ~one.is_padding_example & (one.index != gone)
        )
        for name in ('images', 'labels'):
            a, b = (getattr(batch, name)[left] for batch in (one, other))
            np.testing.assert_array_equal(a, b)
        seen |= set(other.index[left].tolist())
    assert seen == set(whole.index.tolist()) - {gone}


def test_features_are_computed_in_the_slots_of_their_records(monkeypatch):
    config = tiny.config(method='dp_merf')
    run = tiny.run('unused', config, 1)
    whole, row = filtered(config), 7
    monkeypatch.setattr(input_pipeline, 'CHUNK', 5)
    place = jnp.arange(5, dtype=jnp.float32)[:, None, None, None]

    def features(params, chunk):  # a kernel whose rounding depends on the slot
        return chunk.astype(jnp.float32) + place / 8

    made, left = (
        every_feature(dataclasses.replace(run, data=data), features, None)
        for data in (whole, without(whole, row))
    )
    slots = (whole.index % 5)[:, None, None, None]
    np.testing.assert_array_equal(made, whole.images + slots / 8)
    np.testing.assert_array_equal(left, np.delete(made, row, axis=0))


def shapes(fields, there):
    """What the phases of a run hand to compiled functions, of so many records present."""
    config = tiny.config(**fields)
    plan, noted = tiny.plan(config), set()
    data = keep(tiny.dataset(config), np.arange(N) < there)

    def noting(fn, devices, donate=()):
        traced = jax.pmap(fn, axis_name=parallel.AXIS, devices=devices)
        name = getattr(fn, '__name__', None) or fn.func.__name__
        made = {}  # nothing is computed, and what is known is not traced again

        def call(*args):
            leaves = jax.tree.leaves(args)
            given = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
            noted.add((name, given))
            if given not in made:
                made[given] = jax.eval_shape(traced, *args)
            return made[given]

        return call

    def blank(run, init, purpose, *args):
        shapes = jax.eval_shape(init, jax.random.key(0, impl='rbg'), *args)
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)

    with (
        mock.patch.object(parallel, 'pmapped', noting),
        mock.patch.object(Run, 'first_state', blank),
    ):
        for window in probe.windows(config, data, plan, jax.local_devices()[:1]):
            step = 0
            while step < window.phase.total_steps:
                window.state, step, _ = window.phase.window(window.state, step)
    return noted


RUNS = {
    'mixed batches': {},
    'groups': {'dpaf__classifier__unit': 'group', 'dpaf__conv2__gradient': 'group'},
    'classes in turn': {
        'dpaf__batches': 'class_pure',
        'dpaf__batch_size': 2,
        'dpaf__classes_per_step': 1,
    },
    'all at once': tiny.ONE_SHOT,
    'a labeller': tiny.LABELLED,
    'dp_gan': {'method': 'dp_gan'},
    'dp_cgan': {'method': 'dp_cgan'},
    'dpba_wgan': {'method': 'dpba_wgan'},
    'a model for each label': {
        'method': 'dpba_wgan',
        'dpba_wgan__per_label': True,
        'dpba_wgan__generator_steps': 6,
    },
    'dpgen': {'method': 'dpgen'},
    'dp_merf': {'method': 'dp_merf'},
    'pearl': {'method': 'pearl'},
    'ndpdc': {'method': 'ndpdc'},
    'dp_sinkhorn': {'method': 'dp_sinkhorn'},
    'gs_wgan': {'method': 'gs_wgan'},
    'g_pate': {'method': 'g_pate'},
    'p3gm': {'method': 'p3gm'},
}


# Those that share their draws with another, or are a variant of few users.
SLOWLY = (
    'a model for each label',
    'groups',
    'classes in turn',
    'dp_gan',
    'dp_cgan',
    'dpba_wgan',
    'dpgen',
    'gs_wgan',
    'g_pate',
    'pearl',
    'ndpdc',
    'dp_sinkhorn',
    'p3gm',
)


@pytest.mark.parametrize(
    'fields',
    [
        pytest.param(f, id=name, marks=[pytest.mark.slow] * (name in SLOWLY))
        for name, f in RUNS.items()
    ],
)
def test_no_shape_depends_on_how_many_records_are_drawn_or_there(fields):
    assert shapes(fields, N) == shapes(fields, 9)
