"""The verifier rejects every edit of privacy.json."""

import copy
import dataclasses
import functools
import json
import math
from typing import NamedTuple
from unittest import mock

import pytest
import tiny
from tiny_releases import (
    NUMBER,
    SETTINGS,
    call,
    failed,
    plan_once,
    privacy_of,
    rewrite,
)

from dpaf_jax.config import from_public_dict
from dpaf_jax.privacy.plan import FIXED_ENTROPY
from dpaf_jax.verify import contents, statement
from dpaf_jax.verify.statement import check_statement


def other_values(name, value):
    """What else a field could say, down to the smallest change that means anything."""
    yield from (None, '', [], {}, 'certified', FIXED_ENTROPY, True)
    if isinstance(value, str):
        yield from (value + ' ', value[:-1], value.upper(), 'Mechanism')
        yield value.replace('REPLACE_SPECIAL', 'REPLACE_ONE')
        yield value.replace('1e-4', '1e-3')
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from (
            1.01 * value,
            0.99 * value,
            -value,
            0,
            2 * value,
            str(value),
            1e-300,
        )
        if isinstance(value, int):
            yield from (value + 1, value - 1, value + 0.5)
        elif name in ('overflow_delta', 'claimed_epsilon', 'noise_multiplier'):
            yield from (value * (1 + 1e-8) + 1e-20, value * (1 - 1e-8) - 1e-20)
        else:
            yield from (
                math.nextafter(value, math.inf),
                math.nextafter(value, -math.inf),
            )
    if value is None:
        yield from (0.0, 1.0, 'inf')


def edits(fields, path=()):
    """Every way to change one field: (where and how, the value there)."""
    if isinstance(fields, dict | list):
        names = list(fields) if isinstance(fields, dict) else range(len(fields))
        for name in names:
            without = copy.deepcopy(fields)
            del without[name]
            yield (*path, name, 'dropped'), without
            for where, value in edits(fields[name], (*path, name)):
                changed = copy.copy(fields)
                changed[name] = value
                yield where, changed
        if isinstance(fields, dict):
            yield (*path, 'added'), fields | {'note': 'ours'}
        elif fields:
            yield (*path, 'added'), [*fields, fields[-1]]
            if len(fields) > 1:
                yield (*path, 'reversed'), fields[::-1]
    name = path[-1] if path else ''
    for value in other_values(name, fields):
        if not contents.same(value, fields):
            yield (*path, value), value


@pytest.fixture
def known_tuples(monkeypatch):
    """dp-accounting makes a class for every event that it writes: here one for each kind."""

    @functools.cache
    def known(name, fields):
        return NamedTuple(name, fields)

    monkeypatch.setattr(
        'dp_accounting.dp_event.NamedTuple',
        lambda name, fields: known(name, (*fields,)),
    )


@pytest.mark.usefixtures('known_tuples')
@pytest.mark.parametrize('kind', SETTINGS)
def test_every_single_edit_of_privacy_json_is_rejected(kind, made):
    folder = made(kind)
    config = from_public_dict(json.loads((folder / 'config.json').read_text()))
    original, card = privacy_of(folder), (folder / 'README.md').read_text()
    plan = plan_once(tiny.config(**SETTINGS[kind]), NUMBER)
    truth = statement.recompute(original) if plan.epsilon is not None else None

    def rebuild(config, number):
        """The method's own plan for this N, but for the search for the noise."""
        if number == NUMBER:
            return plan
        with mock.patch.object(tiny, 'NUM_EXAMPLES', number):
            other = tiny.plan(config)
        noise = {m.name: m.noise_multiplier for m in plan.mechanisms}
        settled = tuple(
            dataclasses.replace(m, noise_multiplier=noise[m.name])
            for m in other.mechanisms
        )
        stated = dataclasses.replace(plan, mechanisms=settled, num_examples=number)
        return dataclasses.replace(stated, overflow_delta=other.overflow_delta)

    # Epsilon as of the true event: whoever edits one field must be caught without it.
    def check(stated):
        return check_statement(stated, card, config, rebuild, lambda _: truth)

    assert all(c.passed is not False for c in check(original))
    all_edits = list(edits(original))
    assert len(all_edits) > 300
    survivors = [
        where
        for where, stated in all_edits
        if all(c.passed is not False for c in check(json.loads(json.dumps(stated))))
    ]
    assert survivors == []


@pytest.mark.parametrize(
    ('change', 'caught_by'),
    [
        (lambda p: p.update(epsilon=p['epsilon'] - 1e-4), 'epsilon by PLD'),
        (lambda p: p.update(epsilon_rdp=p['epsilon_rdp'] / 2), 'epsilon by Renyi DP'),
        (lambda p: p.update(delta=1e-6), 'plan'),
        (lambda p: p.update(guarantee=FIXED_ENTROPY), 'README.md'),
        (lambda p: p['mechanisms'].clear(), 'plan'),
        (lambda p: p['dp_event']['events'].clear(), 'plan'),
        (lambda p: p['mechanisms'][0].update(noise_multiplier=9.0), 'dp_event'),
        (lambda p: p.update(num_examples=True), 'plan'),
    ],
)
def test_the_command_rejects_an_edit_and_says_where(copied, change, caught_by):
    rewrite(copied / 'privacy.json', change)
    outcome = call(copied)
    assert outcome.code == 1
    assert any(
        line.startswith('FAIL') and caught_by in line
        for line in outcome.out.splitlines()
    )
    assert 'verdict: REJECTED' in outcome.out


def test_a_lie_that_is_told_everywhere_is_caught_by_all_accountants(copied):
    # Two thirds of the noise, in mechanism, event and everything but epsilon.
    def change(privacy):
        sigma = privacy['mechanisms'][0]['noise_multiplier'] * 2 / 3
        privacy['mechanisms'][0]['noise_multiplier'] = sigma
        event = privacy['dp_event']['events'][0]['event']
        event['noise_multiplier'] = sigma

    rewrite(copied / 'privacy.json', change)
    found = failed(copied)
    assert {name for name in found if name.startswith('epsilon')} == {
        'epsilon by PLD',
        'epsilon by Renyi DP',
        'epsilon independently',
    }
    assert 'plan' in found and 'dp_event' not in found


def test_the_third_accountant_does_not_believe_the_first_two(made):
    privacy = privacy_of(made('mixed'))
    config = from_public_dict(json.loads((made('mixed') / 'config.json').read_text()))
    plan = plan_once(tiny.config(**SETTINGS['mixed']), NUMBER)
    true = statement.recompute(privacy)
    for factor in (0.98, 1.02):  # the other two are wrong and privacy.json with them
        wrong = dataclasses.replace(plan, epsilon=round(0.1 / factor, 4))
        lie = statement.Epsilons(wrong.epsilon, true.rdp, true.bounds)
        checks = check_statement(
            wrong.to_json(), '', config, lambda *_, w=wrong: w, lambda _, e=lie: e
        )
        passed = {c.name: c.passed for c in checks}
        assert passed['plan']
        # Too high a statement is no lie.
        assert passed['epsilon independently'] == (factor < 1)


def test_more_steps_than_an_accountant_has_memory_for_are_refused(made):
    privacy = privacy_of(made('mixed'))
    (event,) = privacy['dp_event']['events'][:1]
    event['count'] = 10**9
    with pytest.raises(ValueError, match='steps, more than 10000000'):
        statement.recompute(privacy)


@pytest.mark.parametrize(
    'text',
    ['', '[]', '7', 'null', '{"a": 1', '{}', '{"num_examples": 40}', '[' * 10**5],
)
def test_no_content_of_privacy_json_is_too_strange(copied, text):
    (copied / 'privacy.json').write_text(text)
    assert failed(copied) & {'privacy.json', 'plan'}


def test_json_that_two_readers_understand_differently_is_rejected(copied):
    path = copied / 'privacy.json'
    text = path.read_text()
    path.write_text(text.replace('{', '{"epsilon": 0.1,', 1))
    assert failed(copied) == {'privacy.json'}
    path.write_text(text.replace('"overflow_delta": 0.0', '"overflow_delta": NaN'))
    assert failed(copied) == {'privacy.json'}
