"""The pages' tables are what results.csv and published.csv give."""

import collections
import importlib.util
import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def tables():
    # As a script it finds figures.py beside it.
    sys.path.insert(0, str(ROOT / 'docs'))
    spec = importlib.util.spec_from_file_location('tables', ROOT / 'docs/tables.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope='module')
def figures(tables):
    del tables  # has made it known
    return sys.modules['figures']


def test_every_table_is_what_the_files_give(tables):
    assert tables.main(['--check']) == 0


def test_a_figure_that_was_edited_is_found_out(tables, tmp_path, monkeypatch):
    page = tmp_path / 'page.md'
    text = (ROOT / 'docs/results_before.md').read_text(encoding='utf-8')
    assert '0.981 ± 0.001' in text
    page.write_text(text.replace('0.981 ± 0.001', '0.991 ± 0.001'), encoding='utf-8')
    monkeypatch.setattr(tables, 'PAGES', (page,))
    assert tables.main(['--check']) == 1
    assert tables.main([]) == 0
    assert page.read_text(encoding='utf-8') == text


def test_every_table_stands_on_a_page(tables):
    named = {
        name
        for page in tables.PAGES
        for _, name, _ in tables.BLOCK.findall(page.read_text(encoding='utf-8'))
    }
    assert named == set(tables.TABLES)


def test_a_mean_over_generators_is_not_counted_with_single_ones(figures, monkeypatch):
    rows = figures.select(figures.RESULTS, config='recommended.py:mnist,10', state='')
    mean = next(row for row in rows if row['std'])
    single = next(row for row in rows if not row['std'])
    both = [row | {'classifier': 'cnn', 'overrides': ''} for row in (mean, single)]
    monkeypatch.setattr(figures, 'RESULTS', both)
    with pytest.raises(ValueError, match='beside other rows'):
        figures.measured(config='recommended.py:mnist,10')


def test_rows_are_well_formed(figures):
    for row in figures.RESULTS:
        assert None not in row and None not in row.values(), row  # as many as columns
        measures = [row[name] for name in ('accuracy', 'auroc', 'fid') if row[name]]
        measures = measures or [figures.distance(row)]
        assert measures and all(float(value) >= 0 for value in measures), row
        assert row['accuracy'] == '' or float(row['accuracy']) <= 1, row
        assert row['std'] == '' or int(row['generators']) > 1, row
        assert row['date'] == '' or re.fullmatch(r'\d{4}-\d\d-\d\d', row['date']), row
        assert row['source'], row


def test_a_generator_is_of_one_run(figures):
    of = collections.defaultdict(set)
    for row in figures.RESULTS:
        if row['generator']:
            of[row['generator']].add((row['data'], row['epsilon'], row['state']))
    assert all(len(runs) == 1 for runs in of.values())


def test_what_print_says_stands_beside_every_method(tables, figures):
    _, _, *lines = tables.TABLES['small-certified']().splitlines()
    printed = {line.split(' | ')[0]: line.split(' | ')[-1] for line in lines}
    without = {name for name, each in printed.items() if each == f'{figures.NONE} |'}
    ours = '| DPAF, one-shot aggregates and a labeller, at full settings'
    assert without == {ours, '| DP-CGAN'}
    small = '| DPAF, small class-pure batches, at full settings'
    others = {k: v for k, v in tables.method_tables.METHODS.items() if k != 'dpaf'}
    names = {f'| {told}' for told, *_ in others.values()}
    assert printed.keys() == {ours, small, *names}


def test_the_table_of_a_card_is_of_its_file(tables, tmp_path, monkeypatch):
    path = tmp_path / 'gpu.json'
    monkeypatch.setattr(tables, 'GPU', path)
    assert tables.gpu() == 'No card has been measured yet.\n'
    parts = {
        'clipping': {
            'speedup_over_naive': 4.321,
            'speedup_over_opacus': None,
            'machine': {'device_peak_mib': 512},
            'utilisation_percent': 91.4,
            'date': '2026-01-02 03:04 UTC',
        },
        'step: x': {'error': 'exit status 1'},
        'step: y': {'error': 'no time left'},
    }
    content = {'date': 'today', 'card': {'name': 'Card'}, 'parts': parts}
    path.write_text(json.dumps(content))
    head, _, *rows = tables.gpu().splitlines()
    assert head.startswith('| Card | measured |')
    assert rows == [
        '| clipping | 4.32 × naive `vmap` | 512 MiB | 91 % | 2026-01-02 |',
        '| step: x | exit status 1 | – | – | – |',
        '',
        'No time was left for 1 other parts.',
    ]
