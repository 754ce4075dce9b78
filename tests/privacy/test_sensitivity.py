"""One record moves each pre-noise sum by at most the plan's sensitivity; 1, 8 devices.

Zero-out neighbours: a record's slot becomes padding, or the arrays lack it. Parameters
are scaled up until clips bind, and images are chosen for extreme contrasts.
"""

import functools
import math

import jax
import jax.extend
import numpy as np
import pytest
import tiny
from sensitivity import (
    SCALES,
    check,
    make_units,
    moves,
    summed,
    unclipped,
)

from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.phase1.published import make_classifier
from dpaf_jax.methods.dpaf.phase2.conv2_update import conv2_query
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.phase2.published import published_query
from dpaf_jax.runtime import parallel

DEVICES = [pytest.param(1, marks=pytest.mark.slow), 8]


# --- phase 1 --------------------------------------------------------------------------


def classifier_case(number, *, free=False, **fields):
    """(query over devices, states, plan's sensitivity)."""
    config = tiny.config(**fields)
    plan = tiny.plan(config)
    classifier = make_classifier(
        make_networks(config), config, unclipped(plan) if free else plan
    )
    query = tiny.over_devices(classifier.query, number)
    states = [tiny.state(classifier, i, scale).params for i, scale in enumerate(SCALES)]
    return query, states, plan['conv1'].l2_sensitivity


@pytest.mark.parametrize('number', DEVICES)
@pytest.mark.parametrize('private', ['all', 'conv1'])
def test_one_record_moves_the_classifiers_sum_by_at_most_c(private, number):
    query, states, sensitivity = classifier_case(
        number, dpaf__classifier__private=private, dpaf__classifier__l2_clip_norm=0.02
    )
    assert sensitivity == 0.02
    check(query, number, states, make_units(grouped=False), sensitivity)


@pytest.mark.parametrize('number', DEVICES)
@pytest.mark.parametrize('private', ['all', 'conv1'])
def test_one_record_moves_the_classifiers_groups_by_at_most_2c(private, number):
    query, states, sensitivity = classifier_case(
        number,
        dpaf__classifier__private=private,
        dpaf__classifier__unit='group',
        dpaf__classifier__l2_clip_norm=0.02,
    )
    assert sensitivity == 0.04
    # More than C is reached: a group whose gradient turns round counts twice.
    check(query, number, states, make_units(grouped=True), sensitivity, power=0.55)


@pytest.mark.parametrize('name', ['classifier', 'conv2'])
def test_no_record_reaches_a_sum_from_where_padding_points(name):
    """Weighting padding by 0 would fail: one record's NaN would empty every group."""
    if name == 'classifier':
        query, states, _ = classifier_case(1, dpaf__classifier__unit='group')
    else:
        query, states, _ = conv2_case(1, dpaf__conv2__gradient='group')
    params = states[0] if name == 'classifier' else states[0].params
    (conv1,) = params['conv1']['params'].values()
    # Black becomes 0 and white infinite, in the first layer.
    conv1['kernel'] = np.zeros_like(conv1['kernel'])
    conv1['kernel'][1, 1] = 2e38
    conv1['bias'] = np.full_like(conv1['bias'], 2e38)
    batch = make_units(grouped=True)
    is_padding = np.ones_like(batch.is_padding_example)
    is_padding[:, 0] = False
    sums = []
    for pointed_at in (0, 255):
        images = np.zeros_like(batch.images)
        images[is_padding] = pointed_at
        given = batch._replace(images=images, is_padding_example=is_padding)
        sums.append(summed(query, 1, states[0], given))
    assert np.any(sums[0]) and np.array_equal(*sums)


def test_a_classifier_that_does_not_clip_is_found_out():
    query, states, sensitivity = classifier_case(
        1, free=True, dpaf__classifier__l2_clip_norm=0.02
    )
    assert moves(query, 1, states, make_units(False)).max() > 2 * sensitivity


def test_the_published_classifier_exceeds_the_sensitivity_it_claims():
    query, states, sensitivity = classifier_case(
        1, privacy__guarantee='as_published', dpaf__classifier__l2_clip_norm=0.02
    )
    assert sensitivity == 0.02
    assert moves(query, 1, states, make_units(False)).max() > 2 * sensitivity


# --- phase 2: DPAGG -------------------------------------------------------------------


def gan_case(number, *, free=False, **fields):
    config = tiny.config(**fields)
    plan = tiny.plan(config)
    used = unclipped(plan) if free else plan
    gan = Gan(config, used, number)
    states = [tiny.state(gan, i, scale) for i, scale in enumerate(SCALES)]
    return gan, states, plan


FIXED_TAPS = 'count,contrast,fourier,wavelet,shape,texture,labeller,leaves'


@pytest.mark.parametrize('number', DEVICES)
@pytest.mark.parametrize(
    ('taps', 'batches', 'injection', 'channels', 'axes'),
    [
        ('conv2', 'mixed', 'first_layer', 1, 'none'),
        ('count,pixels,conv1,conv2', 'class_pure', 'input', 1, 'none'),
        pytest.param(
            *(FIXED_TAPS, 'class_pure', 'none', 1, 'none'), marks=pytest.mark.slow
        ),
        pytest.param(
            *(FIXED_TAPS, 'class_pure', 'none', 3, 'none'), marks=pytest.mark.slow
        ),
        (FIXED_TAPS, 'class_pure', 'none', 3, 'all'),
        pytest.param(
            *('count,conv2,perceptual', 'class_pure', 'none', 1, 'all'),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_one_record_moves_dpaggs_table_by_at_most_its_bound(
    taps, batches, injection, channels, axes, number
):
    gan, states, plan = gan_case(
        number,
        **(tiny.LABELLED if 'labeller' in taps else {}),
        dpaf__taps=taps,
        dpaf__batches=batches,
        networks__label_injection=injection,
        data__channels=channels,
        dpaf__axes=axes,
    )
    sensitivity = plan['dpagg'].l2_sensitivity
    assert sensitivity == (1.0 if ',' in taps else math.sqrt(3) * 2)
    params = [state.params for state in states]
    check(
        tiny.over_devices(gan.aggregator.query, number),
        number,
        params,
        make_units(False, channels),
        sensitivity,
    )


@pytest.mark.parametrize('number', DEVICES)
def test_rows_that_are_not_finite_stay_out_of_the_table(number):
    gan, states, _ = gan_case(number)
    batch, query = make_units(False), tiny.over_devices(gan.aggregator.query, number)
    params = jax.tree.map(lambda leaf: np.full_like(leaf, 3e38), states[0].params)
    assert not np.any(summed(query, number, params, batch))


def test_dpagg_on_maps_without_sin_is_found_out(monkeypatch):
    monkeypatch.setattr(
        'dpaf_jax.methods.dpaf.taps.features.simplified_instance_norm',
        lambda maps: maps,
    )
    gan, states, plan = gan_case(1, free=True)
    params = [state.params for state in states]
    far = moves(
        tiny.over_devices(gan.aggregator.query, 1), 1, params, make_units(False)
    )
    assert far.max() > 2 * plan['dpagg'].l2_sensitivity


def test_the_clip_bounds_rows_even_where_sin_does_not(monkeypatch):
    monkeypatch.setattr(
        'dpaf_jax.methods.dpaf.taps.features.simplified_instance_norm',
        lambda maps: maps,
    )
    gan, states, plan = gan_case(1)
    params = [state.params for state in states]
    check(
        tiny.over_devices(gan.aggregator.query, 1),
        1,
        params,
        make_units(False),
        plan['dpagg'].l2_sensitivity,
    )


def test_draws_that_are_asked_together_are_the_tables_of_each():
    gan, states, _ = gan_case(1, dpaf__batches='class_pure')
    batch, params = make_units(False), states[0].params
    segment_ids = np.arange(len(batch.labels), dtype=np.int32) % 3
    device = jax.local_devices()[:1]

    def together(params, batch):
        return parallel.total(gan.aggregator.queries(params, batch, segment_ids, 3))

    tables = summed(parallel.pmapped(together, device), 1, params, batch).reshape(3, -1)
    assert tables.any(axis=1).all()
    for draw in range(3):
        absent = batch.is_padding_example | (segment_ids != draw)[:, None]
        others = batch._replace(is_padding_example=absent)
        table = summed(tiny.over_devices(gan.aggregator.query, 1), 1, params, others)
        np.testing.assert_array_equal(tables[draw], table)


# --- phase 2: conv2* ------------------------------------------------------------------


def conv2_case(number, *, free=False, name='conv2', **fields):
    gan, states, plan = gan_case(
        number, free=free, dpaf__conv2__l2_clip_norm=0.02, **fields
    )
    query = tiny.over_devices(functools.partial(conv2_query, gan, name=name), number)
    return query, states, plan[name].l2_sensitivity


@pytest.mark.parametrize('number', DEVICES)
@pytest.mark.parametrize(
    ('gradient', 'batches'),
    [
        ('singleton', 'mixed'),
        ('singleton', 'class_pure'),
        pytest.param('cotangent', 'mixed', marks=pytest.mark.slow),
        ('cotangent', 'class_pure'),
    ],
)
def test_one_record_moves_conv2s_sum_by_at_most_c(gradient, batches, number):
    query, states, sensitivity = conv2_case(
        number, dpaf__conv2__gradient=gradient, dpaf__batches=batches
    )
    assert sensitivity == 0.02
    check(query, number, states, make_units(False), sensitivity)


@pytest.mark.parametrize('number', DEVICES)
def test_one_record_moves_conv2s_groups_by_at_most_2c(number):
    query, states, sensitivity = conv2_case(number, dpaf__conv2__gradient='group')
    assert sensitivity == 0.04
    check(query, number, states, make_units(True), sensitivity, power=0.55)


@pytest.mark.parametrize('fields', [
    {'dpaf__conv2__with_conv1': True, 'dpaf__classifier__private': 'none'},
    {'dpaf__signs': True, 'dpaf__keep_fraction': 0.1},
    {'dpaf__activation': 'tanh'},
], ids=['with conv1', 'signs', 'tanh'])  # fmt: skip
def test_one_record_moves_it_by_at_most_c_in_every_variant(fields):
    query, states, sensitivity = conv2_case(1, **fields)
    assert sensitivity == 0.02
    check(query, 1, states, make_units(False), sensitivity)


@pytest.mark.parametrize('number', DEVICES)
@pytest.mark.parametrize(
    'gradient', ['singleton', pytest.param('cotangent', marks=pytest.mark.slow)]
)
def test_one_record_moves_a_conv1_that_learns_with_d_by_at_most_its_c(gradient, number):
    query, states, sensitivity = conv2_case(
        number,
        name='conv1',
        dpaf__conv2__gradient=gradient,
        dpaf__classifier__private='discriminator',
        dpaf__classifier__l2_clip_norm=0.01,
    )
    assert sensitivity == 0.01
    check(query, number, states, make_units(False), sensitivity)


def test_a_conv2_that_does_not_clip_is_found_out():
    query, states, sensitivity = conv2_case(1, free=True)
    assert moves(query, 1, states, make_units(False)).max() > 2 * sensitivity


def test_the_published_conv2_exceeds_the_sensitivity_it_claims():
    gan, states, plan = gan_case(
        1, dpaf__conv2__l2_clip_norm=0.02, privacy__guarantee='as_published'
    )
    batch = make_units(False)
    segment_ids = np.arange(len(batch.labels)) // 4  # the two latest batches of DPAGG
    query = tiny.over_devices(
        functools.partial(published_query, gan, segment_ids=segment_ids, name='conv2'),
        1,
    )
    sensitivity = plan['conv2'].l2_sensitivity
    assert moves(query, 1, states, batch).max() > 2 * sensitivity


# --- dtypes -----------------------------------------------------------------------------


def equations(jaxpr):
    """All of a program's, those inside other equations too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from equations(inner)


def program(query, *arguments):
    traced = jax.make_jaxpr(query, axis_env=[(parallel.AXIS, 1)])(*arguments)
    return list(equations(traced.jaxpr))


def types(found):
    return {str(x.aval.dtype) for e in found for x in (*e.invars, *e.outvars)}


ALLOWED = {'float32', 'int32', 'uint32', 'uint8', 'bool'}


@pytest.mark.parametrize('name', ['conv1', 'conv2', 'dpagg'])
def test_no_short_float_touches_a_query_and_sums_are_integers(name):
    grouped = name != 'dpagg'
    gan, states, plan = gan_case(
        1, dpaf__classifier__unit='group', dpaf__conv2__gradient='group'
    )
    classifier = make_classifier(gan.networks, gan.config, plan)
    query, state = {
        'conv1': (classifier.query, tiny.state(classifier).params),
        'conv2': (functools.partial(conv2_query, gan, name='conv2'), states[0]),
        'dpagg': (gan.aggregator.query, states[0].params),
    }[name]

    def summed_over_devices(*args):
        return parallel.total(query(*args))

    found = program(summed_over_devices, state, make_units(grouped))
    assert types(found) <= ALLOWED
    summed = [e for e in found if e.primitive.name.startswith('psum')]
    assert summed and types(summed) == {'int32'}


def test_a_query_in_bfloat16_is_found_out():
    def query(x):
        return jax.jit(lambda y: y.astype('bfloat16').sum())(x)

    assert 'bfloat16' in types(program(query, np.ones(3, np.float32)))
