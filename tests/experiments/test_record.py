"""A finished run's figures become rows of results.csv."""

import copy
import csv
import shutil
import subprocess
import sys

import pytest

from dpaf_jax.runtime.files import write_json
from experiments import record

STATED = {
    'config': 'recommended.py:digits',
    'data': 'digits',
    'hardware': '2 CPU cores, idle',
    'overrides': '',
    'state': 'prototype',
    'source': 'docs/results.md',
    'note': 'legible',
}
REPORT = {
    'method': 'dpaf',
    'when': '2026-11-30 03:55 UTC',
    'config': {'privacy': {'guarantee': 'certified', 'epsilon': 10.0}},
    'privacy': {
        'num_examples': 1469,
        'epsilon': 9.99,
        'delta': 1e-5,
    },
    'accuracy': {
        'synthetic': {
            'cnn': {'mean': 0.9571, 'std': 0.0, 'values': [0.9571]},
            'logistic_regression': {'mean': 0.9, 'std': 0.01, 'values': [0.89, 0.91]},
        }
    },
    'fidelity': {
        'fd_efficientnet_lite0': 138.04,
        'precision': 0.22,
        'recall': 0.634,
        'num_real': 328,
    },
    'wall_seconds': {'plan': 0.4, 'train': 70.2},
    'environment': {'commit': '95b6c0d8d8ee'},
}


def test_a_row_for_each_classifier_and_fidelity_beside_the_cnn():
    cnn, logreg = record.new_rows(REPORT, STATED, 'g7')
    assert cnn['note'] == 'fd_efficientnet_lite0 138.0; 328 images a side; legible'
    assert (cnn['accuracy'], cnn['precision'], cnn['recall']) == (
        '0.957',
        '0.220',
        '0.634',
    )
    assert (cnn['classifier_seeds'], cnn['classifier_std']) == ('1', '')
    assert (logreg['classifier'], logreg['classifier_std']) == ('logreg', '0.010')
    assert 'precision' not in logreg and logreg['generator'] == cnn['generator'] == 'g7'


def test_columns_are_spelt_as_in_the_rows_that_are_there():
    row = record.new_rows(REPORT, STATED, 'g7')[0]
    with record.RESULTS.open(encoding='utf-8') as lines:
        known = list(csv.DictReader(lines))
    assert set(row) <= set(known[0])
    for field in ('method', 'guarantee', 'epsilon', 'delta', 'classifier', 'data'):
        assert row[field] in {r[field] for r in known}
    assert (row['seconds'], row['commit'], row['date']) == (
        '71',
        '95b6c0d',
        '2026-11-30',
    )


@pytest.mark.parametrize(
    ('privacy', 'plan', 'words'),
    [
        ({'guarantee': 'as_published'}, {'epsilon': None, 'claimed_epsilon': 9.9},
         ('as_published', '10', '1e-5')),
        ({'epsilon': 'inf'}, {'epsilon': None}, ('none', 'inf', '')),
    ],
)  # fmt: skip
def test_what_certifies_nothing_says_so(privacy, plan, words):
    report = copy.deepcopy(REPORT)
    report['config']['privacy'] |= privacy
    report['privacy'] |= plan
    row = record.new_rows(report, STATED, 'g7')[0]
    assert (row['guarantee'], row['epsilon'], row['delta']) == words


def command(*arguments):
    call = [sys.executable, '-m', 'experiments.record', *arguments]
    return subprocess.run(call, capture_output=True, text=True)


def test_the_command_appends_and_leaves_what_was_there(tmp_path):
    results = shutil.copy(record.RESULTS, tmp_path / 'results.csv')
    before = results.read_text(encoding='utf-8')
    write_json(tmp_path / 'run' / 'report.json', REPORT)
    flags = [
        '--config_name=recommended.py:digits',
        '--data=digits',
        '--hardware=a core',
    ]
    made = command(f'--workdir={tmp_path / "run"}', f'--out={results}', *flags)
    assert made.returncode == 0, made.stderr
    after = results.read_text(encoding='utf-8')
    assert after.startswith(before) and after.count('\n') == before.count('\n') + 2
    new = list(csv.DictReader(after.splitlines()))[-1]
    assert new['generator'] == made.stdout.split()[0] and new['hardware'] == 'a core'


@pytest.mark.parametrize(
    ('flags', 'words'),
    [
        (['--workdir=x'], '--config_name and --data and --hardware are needed'),
        (
            ['--workdir=x', '--config_name=a', '--data=b', '--hardware=c'],
            'finish the run',
        ),
    ],
)
def test_what_is_missing_is_named(flags, words):
    made = command(*flags)
    assert made.returncode == 2 and words in made.stderr
