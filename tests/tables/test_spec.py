"""Tables are data: a cell has its runs, a printed figure its cell, and a config its plan."""

import csv
import math
import pathlib

import pytest
import tiny_runs
from finished_runs import setup

from dpaf_jax import methods
from dpaf_jax.config import from_config_dict
from dpaf_jax.methods import METHODS
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.tables import data_sets
from dpaf_jax.tables.measured import FIGURES
from dpaf_jax.tables.papers import TABLES, find
from dpaf_jax.tables.runs import cells
from dpaf_jax.tables.scales import ALWAYS, FORMS, SCALES
from dpaf_jax.tables.spec import printed, printed_in

PUBLISHED = pathlib.Path(__file__).parents[2] / 'docs' / 'published.csv'
# What a config leaves to the data.
PUBLIC_N = {'celeba32': 162770, 'celeba64': 162770, 'ffhq128': 62500, 'credit': 455}
DIGITS = 1469
# What stand-ins could not bear as a row has it.
SHRINKS = 'g_pate.teachers', 'data.image_size', 'privacy.budgets'
PLANNED = ['privacy.epsilon', 'evaluation.suite']  # alike, for all but the accountant


def test_every_table_that_was_asked_for_is_there():
    names = [f'dpaf/{i}' for i in range(1, 15)] + [f'dpgen/{i}' for i in range(1, 6)]
    names += ['g_pate/1a', 'g_pate/1b', 'g_pate/1c', 'g_pate/2', 'g_pate/4']
    names += [f'dpba_wgan/{i}' for i in range(1, 6)]
    assert set(names) <= set(TABLES)


def test_every_method_is_in_some_table():
    used = {row.method for table in TABLES.values() for row in table.rows}
    assert set(METHODS) <= used and used - {''} == set(FORMS)


def test_every_printed_figure_has_its_cell_and_no_other():
    found = {
        (table.name, row.label, column): printed_in(table, row, column)
        for table in TABLES.values()
        for row in table.rows
        for column in table.columns
    }
    assert sum(each is not None for each in found.values()) == len(printed()) > 800
    by_table = {name for (name, _, _), each in found.items() if each}
    assert by_table == {name for name in TABLES if not name.startswith('ours/')}


def test_rows_that_are_not_here_have_printed_figures():
    for table in TABLES.values():
        for row in table.rows:
            if not row.method:
                assert any(printed_in(table, row, c) for c in table.columns), row.label


def test_labels_tell_the_rows_of_a_table_apart():
    for table in TABLES.values():
        assert len({row.label for row in table.rows}) == len(table.rows)
        assert set(table.figures) <= set(FIGURES)
        assert set(table.data) <= set(data_sets.DATA_SETS)


def test_a_paper_says_the_same_here_and_in_the_docs():
    tables = {
        'DPAF, Table 1': ('dpaf/1', 'accuracy'),
        'DPGEN, Table 3': ('dpgen/3', 'accuracy'),
        'DPBA-WGAN, Table 1': ('dpba_wgan/1', 'cnn'),
        'G-PATE': ('g_pate/1c', 'accuracy'),
    }
    names = {'celeba_gender_64': 'celeba64:gender', 'celeba_hair_64': 'celeba64:hair'}
    compared = 0
    with PUBLISHED.open(newline='', encoding='utf-8') as file:
        for row in csv.DictReader(file):
            table, figure = tables.get(row['source'], ('', ''))
            data = names.get(row['data'], row['data'])
            key = (table, row['method'], data, float(row['epsilon']), figure)
            if key in printed():
                compared += 1
                assert float(row['accuracy']) == pytest.approx(
                    printed()[key].value, abs=6e-4
                )
    assert compared > 20


@pytest.mark.parametrize(
    'scale',
    [
        'smoke',
        'cpu',
        *(pytest.param(s, marks=pytest.mark.slow) for s in ('gpu', 'paper')),
    ],
)
def test_every_run_of_every_table_parses_and_plans(scale, tmp_path):
    made = setup(tmp_path, scale)
    distinct, parsed = {}, set()
    for table in TABLES.values():
        for cell in cells(table, made):
            run = cell.runs[0]
            alike = {k: v for k, v in run.settings.items() if k not in PLANNED}
            distinct.setdefault((run.file, run.argument, str(alike)), run)
    for run in distinct.values():
        config = from_config_dict(run.config)
        parsed.add(config.method)
        name = run.file if run.file in PUBLIC_N else run.argument.partition(':')[0]
        number = config.data.num_examples or PUBLIC_N[name]
        with tiny_runs.without_accountant():
            plan = methods.get(config.method).plan(config, number)
        assert plan.num_examples == number
        assert config.privacy.delta < 1 / number or math.isinf(config.privacy.epsilon)
    assert parsed == set(METHODS)


@pytest.mark.parametrize(
    ('scale', 'argument', 'epsilon'),
    [('paper', 'gender,printed', 1.0), ('smoke', 'printed', 10.0)],
)
def test_each_budget_of_the_papers_can_be_claimed_by_their_theorem(
    scale, argument, epsilon, tmp_path
):
    shared_out: set[str] = set()
    for table in TABLES.values():
        for cell in cells(table, setup(tmp_path, scale)):
            run = cell.runs[0]
            if cell.guarantee != 'as_published' or run.argument != argument:
                continue
            config = from_config_dict(run.config)
            dpaf, privacy = config.dpaf, config.privacy
            parts = dpaf.classifier.private, dpaf.conv2.with_conv1, dpaf.asymmetry
            told = str((privacy.budgets, parts))
            if privacy.epsilon > epsilon or told in shared_out:
                continue
            shared_out.add(told)
            number = config.data.num_examples or PUBLIC_N.get(run.file, DIGITS)
            plan = methods.get('dpaf').plan(config, number)
            assert plan.claimed_epsilon == pytest.approx(epsilon, rel=0.02)
            assert ('conv1' in plan) == (dpaf.classifier.private != 'none')
    assert len(shared_out) >= 17


def test_what_a_row_is_about_holds_at_every_scale(tmp_path):
    for scale in SCALES:
        made = setup(tmp_path, scale)
        for table in TABLES.values():
            for cell in cells(table, made):
                told = cell.runs[0].settings
                for name, value in ALWAYS.get(cell.row.method, {}).items():
                    assert told[name] == value
                for name, value in cell.row.settings.items():
                    assert told[name] == value or (
                        made.scale.is_smoke and name in SHRINKS
                    )
        mu = {
            cell.runs[0].config.dpaf.asymmetry
            for cell in cells(TABLES['dpaf/10'], made)
        }
        assert mu == {2, 4, 8, 10, 20}
        teachers = {
            cell.runs[0].config.g_pate.teachers
            for cell in cells(TABLES['g_pate/4'], made)
        }
        assert len(teachers) == 3


def test_an_unknown_table_is_refused_with_the_choices():
    with pytest.raises(UserError, match="--table: is 'dpaf/15'.*dpaf/1, "):
        find('dpaf/15')
    assert len(find('dpaf')) == 14 and len(find('all')) == len(TABLES)
