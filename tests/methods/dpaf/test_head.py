"""The head: an answer for each aggregate (class-pure: for each class), and what it reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from sensitivity import summed
from tiny_phases import equal

from dpaf_jax.methods.dpaf.phase2.conv2_update import _unit_loss, conv2_query
from dpaf_jax.methods.dpaf.phase2.discriminator import (
    _loss,
    aggregate_logits,
    head_step,
    head_steps,
    logits,
)
from dpaf_jax.methods.dpaf.phase2.gan import Gan, StepKeys, Use, coins
from dpaf_jax.methods.dpaf.phase2.generator_update import generator_steps
from dpaf_jax.methods.dpaf.plan import plan as make_plan
from dpaf_jax.networks.architecture import make_architecture
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError

answer = jax.jit(aggregate_logits, static_argnums=0)


def make_gan(**fields):
    config = tiny.config(**fields)
    gan = Gan(config, tiny.plan(config), 1)
    return gan, tiny.state(gan, scale=0.3)


def answers(head):
    """The number of answers, by the last layer's bias."""
    last = max(name for name in head['params'] if name.startswith('Dense'))
    return head['params'][last]


@pytest.mark.parametrize(('batches', 'number'), [('mixed', 1), ('class_pure', 3)])
def test_the_head_has_an_answer_for_each_aggregate(batches, number):
    gan, state = make_gan(dpaf__batches=batches)
    assert answers(state.params['head'])['bias'].shape == (number,)
    aggregates = np.ones((number, gan.taps.size), np.float32)
    assert answer(gan, state.params['head'], aggregates).shape == (number,)


@pytest.mark.parametrize('begins_at_zero', [False, True])
def test_answers_begin_at_random_as_printed_or_at_zero(begins_at_zero):
    gan, _ = make_gan(dpaf__head__begins_at_zero=begins_at_zero)
    start = jax.jit(lambda key: gan.init(key, None))(jax.random.key(0))
    made = answer(gan, start.params['head'], np.ones((1, gan.taps.size)))
    assert np.any(made) != begins_at_zero


def test_a_class_is_judged_by_its_own_answer_alone():
    gan, state = make_gan(dpaf__batches='class_pure')
    segment_ids = np.array([0, 2, 2])
    given = np.random.default_rng(0).normal(size=(3, gan.taps.size)).astype(np.float32)

    judged = jax.jit(lambda head: logits(gan, head, given, segment_ids))

    before = judged(state.params['head'])
    answers(state.params['head'])['bias'][2] += 5
    np.testing.assert_allclose(judged(state.params['head']) - before, [0, 5, 5], 1e-5)


def test_a_real_unit_of_a_class_is_judged_by_that_classs_answer():
    gan, state = make_gan(dpaf__batches='class_pure')
    image = np.random.default_rng(2).normal(size=(1, 8, 8, 1)).astype(np.float32)

    @jax.jit
    def gradient(label):
        plane = jnp.eye(3)[label][None]
        maps1 = gan.networks.conv1.apply(state.params['conv1'], image, plane)
        unit = {
            'inputs': {
                'maps1': maps1,
                'rows': np.zeros((1, gan.taps.size), np.float32),
            },
            'weight': np.ones(1, np.float32),
            'segment_ids': label[None],
        }
        trained = {'conv2': state.params['conv2']}
        made = jax.grad(_unit_loss, argnums=2)(gan, trained, state.params, unit)
        return answers(made['head'])['bias']

    for label in range(3):
        assert np.flatnonzero(gradient(np.int32(label))).tolist() == [label]


def test_conv2s_query_passes_each_records_class_on():
    gan, state = make_gan(dpaf__batches='class_pure')
    # Only class 1's answer reads the features at all.
    answers(state.params['head'])['kernel'][:, [0, 2]] = 0.0
    query = tiny.over_devices(lambda s, b: conv2_query(gan, s, b, 'conv2'), 1)
    pixels = np.random.default_rng(1).integers(
        256, size=(1, 1, 8, 8, 1), dtype=np.uint8
    )

    def moved(label):
        labels, is_padding = np.full((1, 1), label, np.int32), np.zeros((1, 1), bool)
        return np.any(summed(query, 1, state, tiny.batch(pixels, labels, is_padding)))

    assert [moved(label) for label in range(3)] == [False, True, False]


def test_an_empty_slot_adds_nothing_to_its_groups_aggregate():
    gan, state = make_gan(dpaf__conv2__gradient='group')
    query = tiny.over_devices(lambda s, b: conv2_query(gan, s, b, 'conv2'), 1)
    pixels = np.random.default_rng(3).integers(
        256, size=(1, 3, 8, 8, 1), dtype=np.uint8
    )

    def gradient(slots, records):
        is_padding = np.arange(slots)[None] >= records
        labels = np.arange(slots)[None]
        return summed(
            query, 1, state, tiny.batch(pixels[:, :slots], labels, is_padding)
        )

    two, with_empty, three = gradient(2, 2), gradient(3, 2), gradient(3, 3)
    np.testing.assert_allclose(with_empty, two, rtol=1e-5, atol=1e-7)
    assert not np.allclose(three, two, rtol=1e-2)  # the third record does count


def test_groups_of_all_classes_do_not_fit_class_pure_batches():
    config = tiny.config(dpaf__batches='class_pure', dpaf__conv2__gradient='group')
    with pytest.raises(UserError, match='class by class'):
        make_plan(config, tiny.plan(tiny.config()).num_examples)


def test_the_head_reads_every_tap_but_the_count():
    gan, state = make_gan(dpaf__batches='class_pure', dpaf__taps='count,pixels,conv2')
    rows = np.ones((3, gan.taps.size), np.float32)

    def changed(name):
        part = gan.taps.part(rows, name) + 1.0
        other = gan.taps.replaced(rows, name, part)
        before, after = (answer(gan, state.params['head'], x) for x in (rows, other))
        return not np.array_equal(before, after)

    assert [changed(b.name) for b in gan.taps.blocks] == [False, True, True]


# --- what a step of the head reads ----------------------------------------------------


def keys():
    noise = np.arange(8, dtype=np.uint32)
    updates = {'conv2': noise + 16}
    return StepKeys(noise, noise + 8, updates, np.arange(4, dtype=np.uint32))


def mapped(fn):
    """As a function of one device."""
    return jax.vmap(fn, axis_name=parallel.AXIS, in_axes=None, axis_size=1)


def call(fn, *args):
    """Inside a mapped function of one device, without compiling it again and again."""
    return jax.tree.map(lambda leaf: np.asarray(leaf[0]), mapped(fn)(*args))


def released(gan, state, value, active):
    """The state behind a release of which every entry is `value`."""

    def step(state):
        sums = jax.numpy.zeros_like(state.latest)
        return gan.privatised(state, sums, active, keys().real_noise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(gan.aggregator), 'privatise', lambda *_: value)
        return call(step, state)


def test_the_head_remembers_the_last_releases_of_each_aggregate():
    gan, state = make_gan(dpaf__batches='class_pure', dpaf__head__memory=2)
    state = state._replace(num_pooled=np.zeros(3), real=0 * state.real)
    turns = [[True, False, True], [True, True, False], [True, False, False]]
    for value, active in enumerate(np.array(turns), 1):
        state = released(gan, state, float(value), active)
    assert state.real[:, 0, 0].tolist() == [3, 2]
    assert state.real[0, :, 0].tolist() == [3, 2, 1]
    assert state.latest[:, 0].tolist() == [3, 2, 1]


def test_places_without_a_release_of_these_features_do_not_count():
    # Adam's first step would show the sign of the gradient alone.
    fields = {'dpaf__head__memory': 2, 'dpaf__head__optimizer': 'sgd'}
    gan, state = make_gan(dpaf__batches='class_pure', **fields)
    state = state._replace(num_pooled=np.array([2.0, 1.0, 0.0]))

    step = jax.jit(mapped(lambda s: head_step(gan, s, keys())[0].params['head']))

    def head(real):
        return step(state._replace(real=real))

    def changed(place, aggregate):
        real = state.real.copy()
        real[place, aggregate] += 1.0
        return not equal(head(real), head(state.real))

    counts = [[changed(place, a) for a in range(3)] for place in range(2)]
    assert counts == [[True, True, False], [True, False, False]]


def test_the_penalty_is_half_the_squared_slope_of_each_answer():
    fields = {'dpaf__batches': 'class_pure', 'dpaf__head__penalty': 0.5}
    gan, state = make_gan(**fields)
    plain, _ = make_gan(dpaf__batches='class_pure')
    head, rows = state.params['head'], state.latest[None] + 1.0
    loss = jax.jit(_loss, static_argnums=(0, 3))
    slopes = jax.jit(jax.jacobian(lambda x: aggregate_logits(gan, head, x)[0]))(rows)
    expected = 0.25 * gan.taps.bound**2 * np.square(slopes).sum(axis=(1, 2, 3))
    for is_real in (False, True):
        added = loss(gan, head, rows, is_real) - loss(plain, head, rows, is_real)
        np.testing.assert_allclose(added[0], expected, 1e-3, 1e-6)


def test_a_penalty_has_a_gradient_through_conv3():
    gan, state = make_gan(dpaf__head__penalty=0.5, networks__layers='C1-C1-C1')
    assert make_architecture(gan.config).parts[2] == 1

    def loss(head):
        return jnp.sum(_loss(gan, head, state.latest[None] + 1.0, True))

    gradient = jax.jit(jax.grad(loss))(state.params['head'])
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_every_step_of_head_and_generator_has_coins_of_its_own(monkeypatch):
    gan, state = make_gan(
        dpaf__head__steps=3,
        dpaf__generator_steps=2,
        dpaf__generator__loss_aggregate=1.0,
    )
    uses, made = [], Gan.fake_aggregates

    def note(self, state, generator, keys, use, inner=0):
        uses.append((use, int(inner)))
        return made(self, state, generator, keys, use, inner)

    monkeypatch.setattr(Gan, 'fake_aggregates', note)
    for steps in head_steps, generator_steps:  # traced, as Python writes them out
        jax.eval_shape(mapped(lambda s, steps=steps: steps(gan, s, keys())[0]), state)
    assert len(uses) == 5 == len(set(uses))


def test_no_two_uses_of_a_step_share_coins():
    made = [coins(keys(), use, inner) for use in Use for inner in range(3)]
    words = {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in made}
    assert len(words) == len(made) == 3 * len(Use)
