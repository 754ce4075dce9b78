"""What a check found, and whether it could have found anything."""

import json

import numpy as np
import pytest

from dpaf_jax.audit import randomness
from dpaf_jax.audit.findings import Check, Outcome, of_bound, run_checks
from dpaf_jax.audit.white_box import uncorrelated
from dpaf_jax.runtime.parallel import ReplicasDiffer


def found(run):
    (finding,) = run_checks([Check.of('dpagg', 'epsilon', 'a case', run)])
    return finding


@pytest.mark.parametrize(
    ('most', 'has_power'), [(0.9, False), (1.0, False), (1.1, True)]
)
def test_an_attack_that_cannot_reach_the_claim_has_no_power(most, has_power):
    finding = found(lambda alpha: of_bound(0.5, most, 1.0, 'twelve guesses'))
    assert finding.passed and finding.has_power == has_power
    assert finding.detail.startswith(f'twelve guesses can show {most:.2f} at most')
    assert json.loads(json.dumps(finding.to_json()))['has_power'] == has_power


def test_no_wording_takes_power_from_a_check():
    outcome = Outcome(True, 0.0, 1.0, 'below the claim: it can refute nothing')
    assert found(lambda alpha: outcome).has_power


@pytest.mark.parametrize('steps', [1, 2])
def test_parts_that_see_no_record_twice_have_no_power(steps):
    seen = [(np.arange(4), np.arange(4))] * steps
    finding = found(lambda alpha: randomness._parts(seen, alpha))
    assert finding.passed and finding.has_power == (steps == 2)


def test_replicas_that_differ_are_a_violation_and_other_errors_stop_the_audit():
    def differ(alpha):
        raise ReplicasDiffer('of one step')

    def broken(alpha):
        raise RuntimeError('replicas differ, says somebody else')

    finding = found(differ)
    assert not finding.passed and finding.detail == 'of one step'
    with pytest.raises(RuntimeError, match='somebody else'):
        found(broken)


def test_few_values_are_called_correlated_no_more_often_than_stated():
    rng, alpha, trials = np.random.default_rng(0), 1e-3, 20_000
    alarms = sum(
        not uncorrelated(*rng.normal(size=(2, 10)), alpha).passed for _ in range(trials)
    )
    assert alarms <= 2 * alpha * trials


def test_the_same_values_are_found_correlated():
    values = np.random.default_rng(0).normal(size=1000)
    assert not uncorrelated(values, values, 1e-3).passed
