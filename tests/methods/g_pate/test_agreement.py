"""How far G-PATE's teachers agree: counted where asked, kept in the nonprivate folder."""

import json
from unittest import mock

import pytest
import tiny
from g_pate_cases import settings

from dpaf_jax.methods.g_pate import data_dependent
from dpaf_jax.methods.g_pate.phase import GPatePhase
from dpaf_jax.methods.g_pate.student import GPate
from dpaf_jax.runtime import parallel


def watched(tmp_path, start=0, stop=4):
    """(config, metrics of all windows, rows) of a phase whose teachers are watched."""
    config = settings(g_pate__agreement=True)
    run = tiny.run(tmp_path, config)
    phase = GPatePhase(run, GPate(config, run.plan))
    state, step, seen = parallel.replicate(phase.init(), run.devices), start, {}
    while step < stop:
        state, step, metrics = phase.window(state, step)
        seen |= metrics
    path = tmp_path / 'nonprivate' / 'agreement' / 'history.jsonl'
    return run, seen, [json.loads(line) for line in path.read_text().splitlines()]


def test_agreement_goes_to_the_nonprivate_folder_alone(tmp_path):
    run, metrics, rows = watched(tmp_path)
    assert set(metrics) == {'queries_passed', 'student_gradient_norm'}
    assert [path.name for path in tmp_path.iterdir()] == ['nonprivate']
    assert (tmp_path / 'nonprivate').stat().st_mode & 0o777 == 0o700
    assert [row['step'] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert 1 >= row['nonprivate_first'] >= 0.25
        assert row['nonprivate_first'] + row['nonprivate_second'] <= 1 + 1e-6
        assert 'NOT PRIVATE' in row['note'] and 'no guarantee' in row['note']
    # Every query is asked and charged: at most the data-independent bound of all steps.
    spent = [row['nonprivate_epsilon_data_dependent'] for row in rows]
    assert spent == sorted(spent)
    queries = run.plan['votes'].steps
    most = queries / run.plan['votes'].noise_multiplier ** 2 / 2
    assert 0 < rows[-1]['nonprivate_renyi'][0] <= 2 * most


@pytest.mark.slow
def test_a_resumed_run_counts_no_step_twice(tmp_path):
    _, _, whole = watched(tmp_path / 'whole')
    watched(tmp_path / 'other', stop=3)
    _, _, rows = watched(tmp_path / 'other', start=2)
    # The state is another one than it would be, but steps and sums go on from the row.
    assert [row['step'] for row in rows] == [1, 2, 3, 4]
    assert rows[:2] == whole[:2]
    sums = [row['nonprivate_renyi'][0] for row in rows]
    assert sums == sorted(sums)
    assert sums[3] - sums[1] == pytest.approx(
        whole[3]['nonprivate_renyi'][0] - whole[1]['nonprivate_renyi'][0], rel=0.5
    )


@pytest.mark.slow
def test_nobody_asks_and_nothing_is_counted(tmp_path):
    config = settings()
    run = tiny.run(tmp_path, config)
    phase = GPatePhase(run, GPate(config, run.plan))
    with mock.patch.object(data_dependent, 'renyi_of_queries') as counted:
        state = parallel.replicate(phase.init(), run.devices)
        _, _, metrics = phase.window(state, 0)
    counted.assert_not_called()
    assert set(metrics) == {'queries_passed', 'student_gradient_norm'}
    assert not list(tmp_path.iterdir())
