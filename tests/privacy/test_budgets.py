"""Contracts of the budget strings and of who takes what is left over."""

import contextlib
import dataclasses
import logging
import math

import pytest
import tiny
import tiny_runs

from dpaf_jax.methods.dpaf.plan import REST_ORDER
from dpaf_jax.privacy import accounting, budgets
from dpaf_jax.privacy.accounting import shares
from dpaf_jax.privacy.noise import TAIL_DELTA
from dpaf_jax.privacy.plan import Mechanism
from dpaf_jax.runtime.errors import UserError

NAMES = 'conv1', 'conv2', 'dpagg'


def test_budgets_may_be_absolute_percentages_and_rest():
    assert shares.parse('0.1,rest,0.1', NAMES, 10.0) == {
        'conv1': 0.1,
        'conv2': None,
        'dpagg': 0.1,
    }
    read = shares.parse(' 20% , 1.5, rest', NAMES, 10.0)
    assert read == {'conv1': 2.0, 'conv2': 1.5, 'dpagg': None}


def test_percentages_follow_epsilon():
    assert shares.parse('25%,50%,25%', NAMES, 4.0) == {
        'conv1': 1.0,
        'conv2': 2.0,
        'dpagg': 1.0,
    }


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('0.1,rest', 'has 2 entries'),
        ('0.1,rest,0.1,0.1', 'has 4 entries'),
        ('', 'has 1 entries'),
        ('0.1,rest,rest', 'two times'),
        ('0.1,rest,much', "entry 'much'"),
        ('0.1,rest,', "entry ''"),
        ('0.1,rest,-1', "entry '-1'"),
        ('0,rest,0.1', "entry '0'"),
        ('nan,rest,0.1', "entry 'nan'"),
        ('inf,rest,0.1', "entry 'inf'"),
        ('%,rest,0.1', "entry '%'"),
        ('5,rest,6', 'adds up to 11 of epsilon 10'),
        ('5,rest,5', 'adds up to 10 of epsilon 10'),
        ('60%,30%,20%', 'adds up to 11 of epsilon 10'),
    ],
)
def test_a_bad_budget_is_refused_by_name(text, message):
    with pytest.raises(UserError, match='config.privacy.budgets') as error:
        shares.parse(text, NAMES, 10.0)
    assert message in str(error.value)


# --- who takes the rest ---------------------------------------------------------------


def make(name):
    return Mechanism(name, '', 0.1, 1.0, 10, 4.0, 4)


@pytest.fixture
def calls(monkeypatch):
    """What is asked of the accountant: [(name, names composed with it, epsilon)]."""
    asked = []

    def calibrate(mechanism, others, epsilon, delta):
        asked.append((mechanism.name, [m.name for m in others], epsilon, delta))
        return dataclasses.replace(mechanism, noise_multiplier=1.0)

    monkeypatch.setattr(accounting, 'calibrate', calibrate)
    monkeypatch.setattr(accounting, 'epsilon_pld', lambda event, delta: 0.5)
    monkeypatch.setattr(accounting, 'epsilon_rdp', lambda event, delta: 0.6)
    return asked


def settle(names, text, epsilon=10.0, guarantee='certified', reason='reason'):
    privacy = tiny.config(
        privacy__epsilon=epsilon, privacy__budgets=text, privacy__guarantee=guarantee
    ).privacy
    mechanisms = [make(name) for name in names]
    return budgets.make_plan(mechanisms, NAMES, REST_ORDER, privacy, 40, reason)


def spent(calls):
    """{name: its own share, or 'rest'}, checking what the rest is composed with."""
    own = [name for name, others, *_ in calls if not others]
    for name, others, epsilon, _ in calls:
        if others:
            assert (sorted(others), epsilon) == (sorted(set(own) - {name}), 10.0)
    return {name: 'rest' if others else eps for name, others, eps, _ in calls}


def test_shares_are_allocations_and_the_rest_fills_the_composition(calls):
    plan = settle(NAMES, '0.1,rest,0.2')
    assert spent(calls) == {'conv1': 0.1, 'dpagg': 0.2, 'conv2': 'rest'}
    assert [m.name for m in plan.mechanisms] == list(NAMES)


def test_shares_of_less_than_the_total_are_kept(calls):
    settle(NAMES, '1,2,3')
    assert spent(calls) == {'conv1': 1.0, 'conv2': 2.0, 'dpagg': 3.0}


def test_shares_of_the_whole_leave_conv2_what_composing_saves(calls):
    settle(NAMES, '20%,60%,20%')
    assert spent(calls) == {'conv1': 2.0, 'dpagg': 2.0, 'conv2': 'rest'}


@pytest.mark.parametrize(
    ('names', 'text', 'expected'),
    [
        (('conv2', 'dpagg'), '0.1,rest,0.2', {'dpagg': 0.2, 'conv2': 'rest'}),
        (('conv2', 'dpagg'), '1,2,3', {'dpagg': 3.0, 'conv2': 'rest'}),
        (('conv1', 'dpagg'), '0.1,rest,0.2', {'conv1': 0.1, 'dpagg': 'rest'}),
        (('dpagg',), '0.1,rest,0.2', {'dpagg': 10.0}),
    ],
)
def test_the_budget_of_an_absent_mechanism_goes_to_the_others(
    names, text, expected, calls
):
    settle(names, text)
    assert spent(calls) == expected


def test_the_accountant_gets_delta_less_the_overflow_and_the_tail(calls):
    plan = settle(NAMES, '0.1,rest,0.2')
    assert 0 < plan.overflow_delta <= 0.01 * plan.delta
    releases = sum(m.steps * m.sampling_prob for m in plan)
    left = plan.delta - plan.overflow_delta - TAIL_DELTA * releases
    assert {delta for *_, delta in calls} == {left} and left < plan.delta


def test_the_stated_epsilon_is_rounded_up_but_never_above_the_target(
    calls, monkeypatch
):
    monkeypatch.setattr(accounting, 'epsilon_pld', lambda event, delta: 9.12341)
    assert settle(NAMES, '1,2,3').epsilon == 9.1235
    monkeypatch.setattr(accounting, 'epsilon_pld', lambda event, delta: 9.99999)
    assert settle(NAMES, '1,2,3', epsilon=9.99999).epsilon == 9.99999


def test_a_composition_above_the_target_is_refused(calls, monkeypatch):
    monkeypatch.setattr(accounting, 'epsilon_pld', lambda event, delta: 10.001)
    with pytest.raises(UserError, match='above 10'):
        settle(NAMES, '1,2,3')


def test_an_infinite_epsilon_asks_for_no_noise(calls):
    plan = settle(NAMES, '0.1,rest,0.2', math.inf)
    assert not calls
    assert plan.epsilon is None
    assert all(m.noise_multiplier == 0 for m in plan.mechanisms)


def test_without_noise_draws_have_the_same_room_where_both_modes_run_the_same_step():
    """With as many slots as records are expected, half of all draws would be cut."""
    certified = settle(NAMES, '0.1,rest,0.2', math.inf)
    same = settle(NAMES, '0.1,rest,0.2', math.inf, 'as_published', None)
    rooms = [[m.capacity for m in plan.mechanisms] for plan in (certified, same)]
    assert rooms[0] == rooms[1]


def test_more_records_at_a_time_than_exact_sums_have_room_for_are_refused():
    privacy = tiny.config().privacy
    for number in (2**24, 2**24 + 1):
        whole = dataclasses.replace(make('dpagg'), sampling_prob=1.0)
        refused = pytest.raises(UserError, match='exact sums have room for 16777216')
        with refused if number > 2**24 else contextlib.nullcontext():
            budgets._fitted([whole], privacy, number)
    sampled = dataclasses.replace(make('dpagg'), sampling_prob=1e-6)
    assert budgets._fitted([sampled], privacy, 2**30)[0].capacity < 2**12


@pytest.mark.parametrize('delta', [1 / 40, 0.5])
def test_a_delta_of_one_over_n_or_more_is_never_certified(delta, calls):
    privacy = tiny.config(privacy__delta=delta).privacy
    for make_plan in (
        lambda: budgets.make_plan([make('dpagg')], NAMES, REST_ORDER, privacy, 40, ''),
        lambda: budgets.make_joint_plan([make('dpagg')], privacy, 40),
    ):
        with pytest.raises(UserError, match='not below 1 / num_examples') as error:
            make_plan()
        assert error.value.where == 'config.privacy.delta'
    assert not calls
    smaller = dataclasses.replace(privacy, delta=0.02)
    plan = budgets.make_plan([make('dpagg')], NAMES, REST_ORDER, smaller, 40, '')
    assert plan.guarantee == 'certified'


def test_a_paper_may_claim_a_delta_of_one_over_n_and_is_warned(calls, caplog):
    privacy = tiny.config(privacy__delta=0.5, privacy__guarantee='as_published').privacy
    with caplog.at_level(logging.WARNING):
        plan = budgets.make_plan([make('dpagg')], NAMES, REST_ORDER, privacy, 40, 'why')
    assert plan.epsilon is None
    assert 'not below 1 / num_examples' in caplog.text


def test_a_delta_that_the_tails_of_many_releases_would_eat_is_refused(calls):
    privacy = tiny.config(privacy__delta=1e-11, privacy__overflow_fraction=0.01).privacy
    few = dataclasses.replace(make('conv1'), sampling_prob=1.0, steps=9)
    many = dataclasses.replace(few, steps=11)
    plan = budgets.plan_of_one(few, privacy, 40)
    assert plan.delta == 1e-11
    message = 'delta: is 1e-11, and the noise of 11 releases falls short .* Use 2e-11'
    with pytest.raises(UserError, match=message):
        budgets.plan_of_one(many, privacy, 40)


def test_the_remedy_for_too_large_an_epsilon_is_of_all_mechanisms():
    """A mechanism's own most would be refused again: its share goes by the total."""
    both = [
        dataclasses.replace(make(name), sampling_prob=1.0, steps=1)
        for name in ('conv1', 'dpagg')
    ]
    privacy = tiny.config(
        privacy__epsilon=1000.0, privacy__budgets='75%,rest,25%'
    ).privacy
    with (
        tiny_runs.accounting_grid(1e-3),
        pytest.raises(UserError, match='is 1000, with which .* below 0.3') as error,
    ):
        budgets.make_plan(both, NAMES, REST_ORDER, privacy, 40, None)
    asked = float(str(error.value).partition('Ask for ')[2].partition(',')[0])
    less = dataclasses.replace(privacy, epsilon=asked)
    with tiny_runs.accounting_grid(1e-3):
        plan = budgets.make_plan(both, NAMES, REST_ORDER, less, 40, None)
    assert plan.epsilon <= asked
