"""The verifier: accepts what the package writes; its command, its accountants."""

import contextlib
import os

import pytest
import tiny
import tiny_runs
from tiny_releases import (
    CERTIFIED,
    NUMBER,
    SETTINGS,
    call,
    plan_once,
    privacy_of,
)

from dpaf_jax.release.card import model_card
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify import __main__ as command
from dpaf_jax.verify import accountant as independent
from dpaf_jax.verify import statement
from dpaf_jax.verify.statement import check_statement
from dpaf_jax.verify.verification import record, verify


@pytest.mark.parametrize('kind', SETTINGS)
def test_every_kind_of_release_is_consistent(kind, known_plan, made):
    found = verify(made(kind))
    assert found.passed, [str(check) for check in found.checks]
    says_nothing = 'NOTHING IS CERTIFIED' in found.verdict()
    assert says_nothing == (kind not in CERTIFIED)


def test_the_command_in_a_process_of_its_own(made):
    done = tiny_runs.run_python(
        '-m', 'dpaf_jax.verify', f'--release={made("one shot")}'
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert 'Not checked: the execution' in lines[-1]
    assert not [line for line in lines if line.startswith('FAIL')]
    for accountant in ('PLD', 'Renyi DP', 'independently'):
        assert any('epsilon' in line and accountant in line for line in lines)
    assert (
        f'verdict: consistent: epsilon = {privacy_of(made("one shot"))["epsilon"]}'
        in (done.stdout)
    )


def test_an_outcome_is_left_in_a_runs_folder_alone(copied):
    found = verify(copied)
    assert record(copied, found) is None
    assert [path.name for path in copied.parent.iterdir()] == ['release']


@pytest.mark.parametrize('kind', CERTIFIED)
def test_all_three_accountants_agree_with_what_is_stated(kind, made):
    privacy = privacy_of(made(kind))
    found = statement.recompute(privacy)
    assert privacy['epsilon'] - 1e-4 <= found.pld <= privacy['epsilon']
    assert privacy['epsilon_rdp'] - 1e-4 <= found.rdp <= privacy['epsilon_rdp']
    assert found.bounds.lower <= found.pld
    assert found.bounds.upper <= 1.005 * found.pld


@pytest.mark.parametrize('kind', SETTINGS)
def test_the_verdict_says_for_which_n_and_by_whose_word(kind, known_plan, made):
    says = f"for N = {NUMBER}, by the owner's word" in verify(made(kind)).verdict()
    assert says == (kind in CERTIFIED)


def test_a_delta_that_is_too_large_for_n_is_remarked_and_no_mistake():
    config = tiny.config(**SETTINGS['no noise'], privacy__delta=0.03)
    plan = plan_once(config, NUMBER)
    checks = check_statement(plan.to_json(), model_card(config, plan.to_json()), config)
    assert [c.passed for c in checks if 'not below 1 / num_examples' in c.detail] == [
        None
    ]
    assert all(check.passed is not False for check in checks)


def test_a_delta_of_one_over_n_is_no_guarantee():
    """Also where the plan would be as the config has it."""
    config = tiny.config(**SETTINGS['one shot'])
    stated = {**plan_once(config, NUMBER).to_json(), 'delta': 0.03}
    found = [
        c for c in statement._check_delta(stated) if '1 / num_examples' in c.detail
    ]
    assert [check.passed for check in found] == [False]


@pytest.mark.parametrize(('sigma', 'accepted'), [(0.3, True), (0.299, False)])
def test_noise_whose_law_is_not_proven_is_no_guarantee(sigma, accepted):
    gauss = {'class': 'GaussianDpEvent', 'noise_multiplier': sigma}
    stated = {'dp_event': gauss, 'delta': 1e-5, 'overflow_delta': 0.0}
    refused = pytest.raises(ValueError, match='not within 0.3 and')
    with contextlib.nullcontext() if accepted else refused:
        assert statement.recompute(stated).pld == pytest.approx(19.1, abs=0.1)


@pytest.mark.parametrize(
    'arguments',
    [(), ('--release=/no/such/folder',), ('--relase=x',), ('--release=.', 'stray')],
)
def test_a_question_that_makes_no_sense_has_status_2(arguments):
    outcome = tiny_runs.call(command.run, 'dpaf_jax.verify', *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith('error: ')


@pytest.mark.parametrize('made', ['nothing', 'a run', 'its release'])
def test_a_folder_without_a_release_is_no_rejected_one(tmp_path, made):
    if made != 'nothing':
        (tmp_path / 'stages.json').touch()
    folder = tmp_path / 'release' if made == 'its release' else tmp_path
    outcome = call(folder)
    assert (outcome.code, outcome.out) == (2, '')
    assert outcome.err.startswith(f'error: {folder}: holds no release (yet). Name the')
    assert not (tmp_path / 'verification.json').exists()


def test_a_release_that_is_closed_to_the_reader_is_not_rejected(copied, monkeypatch):
    access = os.access

    def closed(path, mode):
        return path.name != 'config.json' and access(path, mode)

    monkeypatch.setattr(os, 'access', closed)
    outcome = call(copied)
    assert (outcome.code, outcome.out) == (2, '')
    assert outcome.err.startswith(f'error: {copied}/config.json: cannot be read')


def test_from_python_a_path_may_be_a_string(made, tmp_path):
    assert verify(str(made('mixed'))).checks
    with pytest.raises(UserError, match='is no folder'):
        verify(f'{tmp_path}/nowhere')


@pytest.mark.parametrize('name', ['privacy.json', 'generator.safetensors'])
def test_half_a_release_is_rejected(copied, name):
    for path in copied.iterdir():
        if path.name != name:
            path.unlink()
    assert call(copied).code == 1


def test_the_help_says_what_is_not_checked():
    assert 'not the execution' in ' '.join(command.__doc__.split())


def test_an_event_of_anything_else_is_refused():
    other = {'class': 'ExponentialMechanismDpEvent', 'epsilon': 0.1}
    gauss = {'class': 'GaussianDpEvent', 'noise_multiplier': 3.0}
    for event in (
        other,
        {'class': 'LaplaceDpEvent', 'noise_multiplier': 0.0},
        {'class': 'NonPrivateDpEvent'},
        gauss | {'extra': 1},
        gauss | {'noise_multiplier': 0.0},
        {'class': 'SelfComposedDpEvent', 'event': gauss, 'count': 0},
        {'class': 'ComposedDpEvent', 'events': [gauss, other]},
        {'class': 'PoissonSampledDpEvent', 'sampling_probability': 1.5, 'event': gauss},
        None,
    ):
        with pytest.raises(ValueError, match='Poisson-sampled'):
            independent.queries_of(event)
