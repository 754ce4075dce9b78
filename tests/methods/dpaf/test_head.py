"""The head has an answer for each aggregate: with class-pure batches, for each class."""

import jax
import numpy as np
import pytest
import tiny
from sensitivity import summed

from dpaf_jax.methods.dpaf.phase2.conv2_update import _unit_loss, conv2_query
from dpaf_jax.methods.dpaf.phase2.discriminator import aggregate_logits, logits
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.plan import plan as make_plan
from dpaf_jax.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures('quick_compilation')


def make_gan(**fields):
    config = tiny.config(**fields)
    gan = Gan(config, tiny.plan(config), 1)
    return gan, tiny.state(gan, scale=0.3)


def answers(head):
    """The number of answers, by the last layer's bias."""
    last = max(name for name in head['params'] if name.startswith('Dense'))
    return head['params'][last]


def maps(gan, number):
    side, layout = gan.networks.layout.side(2), gan.networks.layout
    shape = number, side, side, layout.maps(2)
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(('batches', 'number'), [('mixed', 1), ('class_pure', 3)])
def test_the_head_has_an_answer_for_each_aggregate(batches, number):
    gan, state = make_gan(dpaf__batches=batches)
    assert answers(state.params['head'])['bias'].shape == (number,)
    aggregates = np.ones((number, gan.taps.size), np.float32)
    assert aggregate_logits(gan, state.params['head'], aggregates).shape == (number,)


def test_a_class_is_judged_by_its_own_answer_alone():
    gan, state = make_gan(dpaf__batches='class_pure')
    segment_ids = np.array([0, 2, 2])
    given = maps(gan, 3)

    def judged(head):
        return logits(gan, head, given, segment_ids)

    before = judged(state.params['head'])
    answers(state.params['head'])['bias'][2] += 5
    np.testing.assert_allclose(judged(state.params['head']) - before, [0, 5, 5], 1e-5)


def test_a_real_unit_of_a_class_is_judged_by_that_classs_answer():
    gan, state = make_gan(dpaf__batches='class_pure')
    image = np.random.default_rng(2).normal(size=(1, 8, 8, 1)).astype(np.float32)

    def gradient(label):
        unit = {
            'maps1': gan.networks.conv1.apply(
                state.params['conv1'], image, np.eye(3, dtype=np.float32)[[label]]
            ),
            'weight': np.ones(1, np.float32),
            'segment_ids': np.array([label]),
        }
        made = jax.grad(_unit_loss, argnums=2)(
            gan, state.params['conv2'], state.params['head'], unit
        )
        return np.asarray(answers(made)['bias'])

    for label in range(3):
        assert np.flatnonzero(gradient(label)).tolist() == [label]


def test_conv2s_query_passes_each_records_class_on():
    gan, state = make_gan(dpaf__batches='class_pure')
    # Only class 1's answer reads the features at all.
    answers(state.params['head'])['kernel'][:, [0, 2]] = 0.0
    query = tiny.over_devices(lambda s, b: conv2_query(gan, s, b), 1)
    pixels = np.random.default_rng(1).integers(256, size=(1, 1, 8, 8, 1), dtype=np.uint8)

    def moved(label):
        labels, is_padding = np.full((1, 1), label, np.int32), np.zeros((1, 1), bool)
        return np.any(summed(query, 1, state, tiny.batch(pixels, labels, is_padding)))

    assert [moved(label) for label in range(3)] == [False, True, False]


def test_groups_of_all_classes_do_not_fit_class_pure_batches():
    config = tiny.config(dpaf__batches='class_pure', dpaf__conv2__gradient='group')
    with pytest.raises(UserError, match='class by class'):
        make_plan(config, tiny.plan(tiny.config()).num_examples)
