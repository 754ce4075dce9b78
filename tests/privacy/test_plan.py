"""Contracts of the plan: what it promises, and what anybody can recompute from it."""

import json
import math

import dp_accounting
import numpy as np
import pytest
import tiny
import tiny_releases
from dp_accounting import pld

from dpaf_jax.methods import dpaf
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy import plan as plan_lib
from dpaf_jax.privacy.plan import Mechanism, PrivacyPlan

SETTINGS = {
    'mixed': tiny_releases.SETTINGS['mixed'],
    'turns': {
        'privacy__epsilon': 0.3,
        'privacy__budgets': '30%,rest,30%',
        'dpaf__batches': 'class_pure',
        'dpaf__classes_per_step': 1,
        'dpaf__conv2__gradient': 'cotangent',
        'dpaf__classifier__private': 'none',
    },
    'one shot': tiny_releases.SETTINGS['one shot'],
}


@pytest.fixture(scope='module', params=SETTINGS)
def case(request):
    """(config, plan) by the real accountant."""
    config = tiny.config(**SETTINGS[request.param])
    return config, tiny_releases.plan_once(config, tiny.NUM_EXAMPLES)


def rebuild(fields):
    """A dp-accounting event from JSON, with nothing of this package."""
    if isinstance(fields, list):
        return [rebuild(each) for each in fields]
    if not isinstance(fields, dict):
        return fields
    arguments = {k: rebuild(v) for k, v in fields.items() if k != 'class'}
    return getattr(dp_accounting, fields['class'])(**arguments)


def epsilon_of(event, delta):
    accountant = pld.PLDAccountant(
        dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
        value_discretization_interval=1e-4,
    )
    return accountant.compose(event).get_epsilon(delta)


def test_anybody_can_recompute_epsilon_from_the_json(case):
    config, plan = case
    fields = json.loads(plan_lib.dumps(plan))
    event = rebuild(fields['dp_event'])
    delta = fields['delta'] - fields['overflow_delta']
    epsilon = epsilon_of(event, delta)
    assert epsilon <= fields['epsilon'] <= config.privacy.epsilon
    assert fields['epsilon'] - epsilon <= 1e-4
    # No budget is left lying about.
    assert fields['epsilon'] >= 0.98 * config.privacy.epsilon
    assert fields['epsilon_rdp'] > fields['epsilon']
    assert fields['delta'] == config.privacy.delta
    assert fields['guarantee'] == 'certified'
    assert fields['num_examples'] == tiny.NUM_EXAMPLES
    assert 0 <= fields['overflow_delta'] <= 0.011 * fields['delta']


def test_the_event_holds_each_mechanism_as_it_runs(case):
    _, plan = case
    event = plan.dp_event
    assert len(event.events) == len(plan.mechanisms)
    for part, m in zip(event.events, plan.mechanisms, strict=True):
        once = dp_accounting.GaussianDpEvent(m.noise_multiplier)
        if m.sampling_prob < 1:
            once = dp_accounting.PoissonSampledDpEvent(m.sampling_prob, once)
        assert part == dp_accounting.SelfComposedDpEvent(once, m.steps)


def test_a_plan_survives_the_way_through_json(case):
    _, plan = case
    assert PrivacyPlan.from_json(json.loads(plan_lib.dumps(plan))) == plan
    fields = plan_lib.event_to_json(plan.dp_event)
    assert plan_lib.event_from_json(json.loads(json.dumps(fields))) == plan.dp_event


def test_the_json_names_what_people_need(case):
    _, plan = case
    fields = plan.to_json()
    assert {'neighbors', 'accountant', 'mechanisms'} <= set(fields)
    for mechanism in fields['mechanisms']:
        assert {
            'name',
            'kind',
            'sampling_prob',
            'l2_sensitivity',
            'noise_multiplier',
            'steps',
            'expected_batch_size',
            'capacity',
        } <= set(mechanism)


def test_the_stated_neighbours_are_the_accountants(case):
    _, plan = case
    assert accounting.NEIGHBORING.name == 'REPLACE_SPECIAL'
    assert 'REPLACE_SPECIAL' in plan.neighbors
    assert 'zero-out' in plan.neighbors
    grid = float(plan.accountant.partition('grid ')[2].removesuffix(')'))
    assert grid == accounting.pld_grid(
        accounting.epsilon_rdp(plan.dp_event, plan.delta)
    )


def test_every_draw_has_room(case):
    _, plan = case
    for m in plan.mechanisms:
        prob = m.sampling_prob / m.num_groups
        most = m.shared_by * tiny.NUM_EXAMPLES
        enough = most * prob + 4 * math.sqrt(most * prob * (1 - prob))
        assert min(enough, most) <= m.capacity <= most


@pytest.mark.parametrize(('at_once', 'shared_by'), [(0, 4), (1, 2), (3, 4)])
def test_no_class_has_more_turns_in_a_window_than_share_its_slots(at_once, shared_by):
    config = tiny.config(
        dpaf__batches='class_pure',
        dpaf__classes_per_step=at_once,
        dpaf__asymmetry=4,
        dpaf__batch_size=2,
    )
    dpagg = tiny.plan(config)['dpagg']
    turns = 3 // (at_once or 3)
    windows = np.arange(dpagg.steps * turns).reshape(-1, 4) % turns
    assert dpagg.shared_by == shared_by
    assert max(np.sum(windows == t, axis=1).max() for t in range(turns)) == shared_by


def test_mechanisms_are_found_by_name_and_in_order():
    plan = tiny.plan(tiny.config())
    assert tuple(plan) == plan.mechanisms
    assert plan['dpagg'] in plan.mechanisms and 'dpagg' in plan
    with pytest.raises(KeyError, match="'classes': the plan has .*'dpagg'"):
        plan['classes']
    left = plan.without('dpagg')
    assert tuple(left) == tuple(m for m in plan if m.name != 'dpagg')
    assert left.epsilon == plan.epsilon


def test_a_run_without_noise_says_so_and_cuts_no_draw():
    pure = {'dpaf__batches': 'class_pure', 'dpaf__batch_size': 4}
    config = tiny.config(privacy__epsilon=math.inf, privacy__delta=0.0, **pure)
    plan = dpaf.plan(config, tiny.NUM_EXAMPLES)
    assert plan.epsilon is plan.epsilon_rdp is plan.claimed_epsilon is None
    assert plan.guarantee.startswith('none (epsilon is infinite')
    assert plan.dp_event == dp_accounting.NonPrivateDpEvent()
    for m in plan.mechanisms:
        assert m.noise_std == 0
        assert math.isinf(m.l2_sensitivity)
        assert m.capacity > 1.5 * m.expected_batch_size
    fields = json.loads(plan_lib.dumps(plan))
    assert fields['mechanisms'][0]['l2_sensitivity'] is None
    assert PrivacyPlan.from_json(fields) == plan


def test_the_terminal_names_every_mechanism_and_the_total(case):
    _, plan = case
    text = plan_lib.describe(plan)
    assert all(m.name in text and m.kind in text for m in plan.mechanisms)
    assert f'epsilon {plan.epsilon} (PLD), {plan.epsilon_rdp} (RDP)' in text


# --- the method's mechanisms ----------------------------------------------------------


def mechanism(name, **fields):
    return tiny.plan(tiny.config(**fields))[name]


@pytest.mark.parametrize(
    ('name', 'field'), [('conv1', 'dpaf__classifier'), ('conv2', 'dpaf__conv2')]
)
def test_groups_have_twice_the_clip_bound_and_noise_to_match(name, field):
    unit = 'unit' if name == 'conv1' else 'gradient'
    clip = {f'{field}__l2_clip_norm': 0.3}
    single = mechanism(name, **clip, **{f'{field}__{unit}': 'singleton'})
    group = mechanism(name, **clip, **{f'{field}__{unit}': 'group'})
    assert (single.l2_sensitivity, single.num_groups) == (0.3, 1)
    assert (group.l2_sensitivity, group.num_groups) == (0.6, 4)
    assert group.noise_std == 2 * single.noise_std == 0.6  # at noise multiplier 1
    # A record is in one group: the rate of the whole draw is what it is charged.
    assert group.sampling_prob == single.sampling_prob == 8 / 40


def test_dpagg_has_the_papers_sensitivity():
    # Two halvings of 8 leave p = 2, and three maps.
    assert mechanism('dpagg').l2_sensitivity == pytest.approx(2 * math.sqrt(3))


def test_several_taps_share_a_bound_of_one():
    assert mechanism('dpagg', dpaf__taps='count,conv2').l2_sensitivity == 1.0


@pytest.mark.parametrize('classes_per_step', [0, 1, 3])
def test_a_class_is_charged_k_times_the_rate_for_its_own_turns(classes_per_step):
    config = tiny.config(
        dpaf__batches='class_pure',
        dpaf__batch_size=2,
        dpaf__epochs=0.9,
        dpaf__classes_per_step=classes_per_step,
    )
    plan = tiny.plan(config)
    m, at_once = plan['dpagg'], classes_per_step or 3
    assert m.sampling_prob == pytest.approx(2 * 3 / 40)
    gan = Gan(config, plan, 1)
    assert gan.schedule.dpagg_steps * at_once == m.steps * 3
    # A record is seen `epochs` times or, in whole windows, a little more.
    assert m.steps == 6
    assert m.steps * m.sampling_prob == pytest.approx(0.9)
    assert gan.schedule.dpagg_steps % 2 == 0
    # Expected sizes: of a draw from the classes whose turn it is, and of an aggregate.
    assert m.expected_batch_size == pytest.approx(2 * at_once)
    assert gan.schedule.expected_counts.ravel().tolist() == pytest.approx([2.0] * 3)


def test_a_stated_prior_scales_the_counts_and_not_the_rate():
    prior = (0.5, 0.3, 0.2)
    config = tiny.config(
        dpaf__batches='class_pure', dpaf__batch_size=2, data__class_prior=prior
    )
    plan = tiny.plan(config)
    gan = Gan(config, plan, 1)
    assert plan['dpagg'].sampling_prob == pytest.approx(2 * 3 / 40)
    assert gan.schedule.expected_counts.ravel().tolist() == pytest.approx(
        [3.0, 1.8, 1.2]
    )
    # Else the head could tell fakes by how much their aggregates scatter.
    assert gan.schedule.num_fakes.tolist() == [3, 2, 1]


def test_a_random_conv1_and_a_random_conv2_cost_nothing():
    plan = tiny.plan(
        tiny.config(dpaf__classifier__private='none', dpaf__conv2__gradient='none')
    )
    assert [m.name for m in plan.mechanisms] == ['dpagg']


def test_the_plan_lists_the_mechanisms_in_the_order_of_the_budgets():
    plan = tiny.plan(tiny.config())
    assert [m.name for m in plan.mechanisms] == ['conv1', 'conv2', 'dpagg']
    assert 'conv1' in plan
    assert 'conv3' not in plan


def test_no_noise_has_no_deviation_even_at_infinite_sensitivity():
    m = Mechanism('x', '', 0.5, math.inf, 1, 1.0, 1)
    assert m.noise_std == 0.0


def bounded_sum(epsilon):
    privacy = tiny.config(**{'privacy.epsilon': epsilon}).privacy
    return Mechanism.bounded_sum(
        'conv1', 'sum', privacy, 400, batch_size=100, l2_sensitivity=2.0, steps=3
    )


def test_a_bounded_sum_charges_its_clip_and_a_records_chance_of_a_draw():
    m = bounded_sum(1.0)
    assert (m.sampling_prob, m.l2_sensitivity, m.steps) == (0.25, 2.0, 3)
    assert m.expected_batch_size == 100.0


def test_nothing_bounds_a_sum_where_nothing_is_clipped():
    assert bounded_sum(math.inf).l2_sensitivity == math.inf
