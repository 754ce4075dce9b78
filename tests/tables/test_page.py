"""A half-finished table prints what it has, and never mixes epsilons that hold with others."""

import csv
import io
import json
import math
import re
import sys
import warnings

import numpy as np
import pytest
from finished_runs import finish, setup
from PIL import Image

from dpaf_jax.evaluation import classical
from dpaf_jax.runtime.files import write_json
from dpaf_jax.tables import formats, pictures
from dpaf_jax.tables.fill import _name, fill
from dpaf_jax.tables.measured import Found, found
from dpaf_jax.tables.page import _epsilon, page
from dpaf_jax.tables.papers import TABLES
from dpaf_jax.tables.runs import Run, cells
from dpaf_jax.tables.scales import CERTIFIED
from dpaf_jax.tables.spec import Column, Figure, Row


def finished(name, made, wanted, accuracy=lambda i: 0.5 + 0.01 * i):
    """Finishes the runs of the cells that are wanted."""
    number = 0
    for cell in cells(TABLES[name], made):
        for run in cell.runs:
            if wanted(cell) and not run.is_done:
                finish(run, accuracy(number))
                number += 1
    return number


def runs_of(name, made):
    return sum(len(cell.runs) for cell in cells(TABLES[name], made))


def lines_of(made_page):
    return {(line.row.label, line.kind): line for line in made_page.lines}


def test_an_empty_table_has_what_is_printed_and_dashes(tmp_path):
    runs = runs_of('dpaf/1', setup(tmp_path))
    made = page(TABLES['dpaf/1'], setup(tmp_path))
    lines = lines_of(made)
    assert lines['DPAF', 'printed'].cells[0].value == 0.501
    assert lines['DPAF', 'printed'].epsilon == 'claimed, and its proof fails'
    here = lines['DPAF', 'certified, here']
    assert set(here.cells) == {None} and here.epsilon == '–'
    text = formats.markdown(made)
    assert runs > 100 and f'0 of {runs} runs are done.' in text
    assert 'CelebA-Gender, CelebA-Hair' in text  # not there
    text = formats.markdown(page(TABLES['g_pate/1a'], setup(tmp_path)))
    assert '| DP-GAN, ε = 1 | not implemented here |' in text


def test_a_half_finished_table_prints_what_it_has(tmp_path):
    made = setup(tmp_path)
    number = finished(
        'dpaf/1',
        made,
        lambda cell: cell.column.data == 'mnist' and cell.column.epsilon == 1.0,
    )
    shown = page(TABLES['dpaf/1'], made)
    assert shown.counts[:2] == (number, runs_of('dpaf/1', made))
    lines = lines_of(shown)
    certified = lines['DPAF', 'certified, here']
    assert certified.epsilon == 'holds' and certified.cells[0] is not None
    assert certified.cells[1:] == (None,) * 7
    assert lines['DPAF', 'as published, here'].epsilon == 'none'
    # Three generators of what is recommended: mean and deviation.
    ours = lines['recommended.py (ours)', 'certified, here'].cells[0]
    assert ours.std == pytest.approx(0.01)
    text = formats.markdown(shown)
    assert re.search(r'\| DPAF \| certified, here \| holds \| 0\.\d{3} \| – \|', text)
    assert '| 3 of 3 |' in text and '| 50.0 ± 0.0 | 0.500 ± 0.000 |' in text  # fidelity


def test_the_best_test_epoch_stands_apart_and_is_called_what_it_is(tmp_path):
    made = setup(tmp_path, 'paper')
    first, *_ = (
        cell
        for cell in cells(TABLES['dpaf/1'], made)
        if cell.row.label == 'DPAF' and cell.guarantee == CERTIFIED
    )
    bests = [0.8, 0.7, 0.9, None, None]  # two were judged without held-out images
    for run, best in zip(first.runs, bests, strict=True):
        finish(run, 0.5, best=best)
    shown = page(TABLES['dpaf/1'], made)
    lines = lines_of(shown)
    i = shown.table.columns.index(first.column)
    assert lines['DPAF', 'certified, here'].cells[i].value == 0.5
    best = lines['DPAF', 'certified, here; legacy_max']
    assert best.cells[i] == (pytest.approx(0.8), pytest.approx(0.1))
    assert [kind for _, kind in lines if 'legacy_max' in kind] == [best.kind]
    text = formats.markdown(shown)
    assert '| certified, here; legacy_max | holds |' in text
    assert 'It selects on the test set' in text
    # Elsewhere nothing is said of it.
    assert 'legacy_max' not in formats.markdown(page(TABLES['dpaf/2'], made))


def test_a_distance_of_ours_never_stands_under_fid(tmp_path):
    made = setup(tmp_path)
    finished('dpba_wgan/1', made, lambda cell: cell.column.data == 'mnist')
    shown = page(TABLES['dpba_wgan/1'], made)
    columns = shown.table.columns
    for line in shown.lines:
        for column, figure in zip(columns, line.cells, strict=True):
            if column.figure == 'fid':
                assert figure is None or line.kind == 'printed'
            if column.figure == 'fd_efficientnet_lite0':
                assert figure is None or line.kind != 'printed'
    assert any(
        f and c.figure == 'fd_efficientnet_lite0'
        for line in shown.lines
        for c, f in zip(columns, line.cells, strict=True)
    )


@pytest.mark.parametrize(
    'name,figure,value', [('dpba_wgan/1', 'fid', 31.5), ('g_pate/1b', 'is', 2.25)]
)
def test_fid_and_inception_score_stand_where_a_run_has_them(
    name, figure, value, tmp_path
):
    made = setup(tmp_path)
    measured = {'fid': 31.5, 'inception_score': 2.25, 'fid_other_weights': 99.5}
    there = (each for each in cells(TABLES[name], made) if each.row.method != 'real')
    for run in next(each for each in there if not each.runs[0].lacks).runs:
        finish(run, 0.5, **measured)
    shown = page(TABLES[name], made)
    figures = {
        each.value
        for line in shown.lines
        for column, each in zip(shown.table.columns, line.cells, strict=True)
        if column.figure == figure and each and line.kind != 'printed'
    }
    assert figures == {value}
    text = formats.markdown(shown)
    assert '| FID | Inception score | generators |' in text and '99.5' not in text


@pytest.mark.parametrize(
    ('epsilon', 'guarantee', 'told'),
    [
        (3.0, CERTIFIED, 'holds'),
        (3.0, 'none (fixed entropy)', 'holds in part'),
        (math.inf, 'none', 'holds where finite'),
    ],
)
def test_an_epsilon_that_does_not_hold_is_not_said_to(epsilon, guarantee, told):
    row = Row(label='DPGEN', method='dpgen')
    there = {
        Column('mnist', each, 'accuracy'): Found({}, {}, 1, 1, words)
        for each, words in ((1.0, CERTIFIED), (epsilon, guarantee))
    }
    assert _epsilon(row, there) == told


def test_one_run_of_a_cell_without_a_guarantee_takes_it_from_all(tmp_path):
    made = setup(tmp_path)
    cell = next(
        each for each in cells(TABLES['ours/methods'], made) if len(each.runs) > 1
    )
    for run in cell.runs:
        finish(run, 0.5)
    assert found(cell, made.scale, ()).guarantee == CERTIFIED
    statement = cell.runs[1].workdir.release / 'privacy.json'
    write_json(statement, {'guarantee': 'none (fixed entropy)'})
    assert found(cell, made.scale, ()).guarantee == 'none (fixed entropy)'


def test_every_format_says_the_same(tmp_path):
    made = setup(tmp_path)
    finished('ours/methods', made, lambda cell: cell.column.data == 'mnist')
    assert not fill([TABLES['ours/methods']], made, 0, (1, 1))
    folder = made.out / 'cpu' / 'ours-methods'
    content = json.loads((folder / 'table.json').read_text())
    rows = list(csv.DictReader(io.StringIO((folder / 'table.csv').read_text())))
    figures = {
        (row['row'], row['figures'], row['data'], float(row['epsilon'])): row
        for row in rows
    }
    count = 0
    for line in content['lines']:
        for column, cell in zip(content['columns'], line['cells'], strict=True):
            if cell:
                key = (line['row'], line['figures'], column['data'], column['epsilon'])
                assert float(figures[key]['value']) == cell['value']
                count += 1
    assert count == len(rows) > 10
    assert content['done'] == sum(run['done'] for run in content['runs'])
    latex = (folder / 'table.tex').read_text()
    body = [line for line in latex.splitlines() if line.endswith(r'\\')]
    columns = 3 + len(content['columns'])
    for line in body:
        assert len(re.findall(r'(?<!\\)&', line)) == columns - 1
        assert not re.search(r'(?<!\\)[%_#]', line)


@pytest.mark.parametrize('scale', ['cpu', 'smoke'])
def test_a_figure_that_no_run_has_is_named(tmp_path, scale):
    """As of a classifier whose library is missing; the mean of all is missing with it."""
    made = setup(tmp_path, scale)
    name = 'dpba_wgan/4'
    assert page(TABLES[name], made).unmeasured == []  # nothing is finished
    finished(name, made, lambda cell: cell.row.label == 'DP-MERF')
    shown = page(TABLES[name], made)
    assert 'xgboost' in shown.unmeasured and 'average' not in shown.unmeasured
    assert 'cnn' not in shown.unmeasured
    text = formats.markdown(shown)
    assert re.search(r'No finished run has a figure of .*, XGBoost: their logs', text)


def test_all_methods_side_by_side(tmp_path):
    made = setup(tmp_path)
    finished('ours/methods', made, lambda cell: cell.column.data == 'mnist')
    shown = page(TABLES['ours/methods'], made)
    found = dict(pictures.all_pictures(shown))
    assert set(found) == {'samples-mnist', 'epsilon'}
    lines = len({(c.row.label, c.guarantee) for c in cells(shown.table, made)})
    strips = pictures._strips(shown, 'mnist')
    names = [each.label for each in strips]
    assert names[0] == 'DPAF\nas published, ε = 10' and len(names) == lines
    grey = strips[0].images.mean(axis=(1, 2, 3))
    np.testing.assert_array_equal(grey, 20 + 20 * np.arange(10))  # class by class
    width, height = Image.open(io.BytesIO(found['samples-mnist'])).size
    assert height > width


def test_the_first_of_each_class_and_no_chosen_ones():
    labels = np.array([1, 0, 0, 1, 1, 0])
    images = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1)
    shown = pictures.first_of_each(images, labels, 2, across=4)
    assert shown.ravel().tolist() == [1, 2, 0, 3]
    assert len(pictures.first_of_each(images, labels, 2, across=1)) == 2


def test_curves_by_epsilon_leave_out_what_has_one_point(tmp_path):
    made = setup(tmp_path)
    finished(
        'ours/epsilon',
        made,
        lambda cell: cell.row.method == 'recommended' or cell.column.epsilon == 1.0,
    )
    curves = pictures._curves(page(TABLES['ours/epsilon'], made), 'epsilon')
    assert {each.label for each in curves} == {'recommended.py (ours), certified'}
    assert all(
        [x for x, _ in each.points] == [0.2, 0.5, 1, 2, 5, 10] for each in curves
    )
    assert {each.figure for each in curves} == {'accuracy', 'fd_efficientnet_lite0'}


def test_smoke_prints_neither_a_figure_nor_an_epsilon_that_holds(tmp_path):
    made = setup(tmp_path, 'smoke')
    assert finished('dpaf/3', made, lambda cell: True, lambda i: 0.4321)
    shown = page(TABLES['dpaf/3'], made)
    for text in (
        formats.markdown(shown),
        formats.latex(shown).partition(r'\end{tabular}')[0],
        formats.comma_separated(shown),
    ):
        assert 'rehearsal on stand-in digits' in text and 'ran' in text
        assert not re.search(r'0\.\d{3}|holds|printed|, here', text)
        assert 'for FFHQ-Gender' in text
    assert '**smoke: a rehearsal.' in formats.markdown(shown)
    assert formats.as_json(shown)['rehearsal'] == 'rehearsal on stand-in digits'
    assert [name for name, _ in pictures.all_pictures(shown)] == ['samples-ffhq128']
    assert not any('ε' in each.label for each in pictures._strips(shown, 'ffhq128'))


def test_smoke_says_of_what_a_run_failed(tmp_path, monkeypatch, capsys):
    made, code = setup(tmp_path, 'smoke'), 'import sys; sys.exit("it | broke")'
    monkeypatch.setattr(Run, 'commands', [[sys.executable, '-c', code]])
    failed = fill([TABLES['dpaf/3']], made, 2, (1, 1))
    out, folder = capsys.readouterr().out, made.out / 'smoke' / 'dpaf-3'
    assert failed and f'{len(failed)} to be made, 2 at a time\n' in out
    for (
        each
    ) in failed:  # told before it ended, and not by an epsilon that it did not run
        assert f'begins; its log is {each.run.log}\n' in out
    assert 'stand-in for ffhq128' in out and 'ε' not in out
    text = (folder / 'table.md').read_text()
    assert (
        text.count('| failed: it / broke |') and 'ran' not in text.split('| --- |')[-1]
    )
    finish(failed[0].run, 0.5)
    failed[0].run.failure_file.unlink()
    assert not fill([TABLES['dpaf/3']], made, 0, (1, 1))
    assert '| ran |' in (folder / 'table.md').read_text()


def test_other_scales_tell_data_and_epsilon_of_a_run(tmp_path):
    (cell, *_) = cells(TABLES['dpaf/3'], setup(tmp_path))
    assert _name('dpaf/3', cell, setup(tmp_path)).endswith(', ffhq128, ε = 1')


@pytest.mark.slow
@pytest.mark.parametrize('name', TABLES)
def test_every_row_runs_at_smoke_scale(name, tmp_path_factory):
    out = tmp_path_factory.getbasetemp() / 'smoke'  # runs are shared
    made = setup(out, 'smoke')
    failed = fill([TABLES[name]], made, 2, (1, 1))
    assert not failed, failed
    shown = page(TABLES[name], made)
    for line in shown.lines:
        if 'here' in line.kind and line.row.method:
            assert any(line.cells), line
    assert shown.counts[0] == shown.counts[1]
    absent = set(classical.MODELS) - set(classical.installed())
    assert set(shown.unmeasured) <= absent
    if shown.unmeasured:
        warnings.warn(f'{name}: nobody walked {shown.unmeasured}', stacklevel=1)


def test_runs_of_different_numbers_of_records_can_be_told_apart(tmp_path):
    made = setup(tmp_path)
    finished('ours/records', made, lambda cell: cell.row.method == 'dp_merf')
    head, body = formats._runs_head_and_body(page(TABLES['ours/records'], made))
    assert head[4] == 'N' and {line[4] for line in body} > {'all'}
    what = [tuple(line[:5]) for line in body]
    assert len(set(what)) == len(what) > 0
    assert formats._runs_head_and_body(page(TABLES['dpaf/1'], made))[0][4] != 'N'


@pytest.mark.parametrize(
    ('figure', 'text'),
    [
        (Figure(1.0, 0.003), '1.000 ± 0.003'),
        (Figure(106.0), '106'),
        (Figure(0.7481, 0.01), '0.748 ± 0.010'),
        (Figure(-2.0), '-2'),
        (Figure(math.nan), 'nan'),  # of an AUROC without rows of a class
    ],
)
def test_a_figure_and_its_spread_have_the_same_digits(figure, text):
    assert formats.shown(figure) == text
