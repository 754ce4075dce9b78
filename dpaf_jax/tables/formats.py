"""A page as Markdown, LaTeX, CSV and JSON."""

import csv
import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any

from dpaf_jax.runtime.text import number
from dpaf_jax.tables.data_sets import DATA_SETS
from dpaf_jax.tables.measured import FIGURES
from dpaf_jax.tables.page import ABOUT_BEST, ABSENT, BEST, WARNING, Line, Page
from dpaf_jax.tables.spec import Column, Figure, Row, Table

DISTANCE, COMPARED = 'fd_efficientnet_lite0', 'num_synthetic'
ALSO = ('accuracy', DISTANCE, 'precision', 'recall', COMPARED)
STANDARD = ('fid', 'is')  # where a run has them
LONGEST = 120  # of a failure, in letters
NOT_COVERED = (
    'Figures measured here compare with real test images: no epsilon covers them.'
)


def shown(figure: Figure | None) -> str:
    """'0.748 ± 0.010', or a dash."""
    if figure is None:
        return ABSENT
    digits = 3 if abs(figure.value) < 10 else 1
    is_whole = figure.value % 1 == 0 and abs(figure.value) >= 1  # NaN is not
    if is_whole and figure.std is None:
        digits = 0
    text = f'{figure.value:.{digits}f}'
    return text if figure.std is None else f'{text} ± {figure.std:.{digits}f}'


def heading(column: Column, table: Table) -> str:
    """What is above a column."""
    parts = [DATA_SETS[column.data].title]
    if column.epsilon is not None:
        parts.append(f'ε = {number(column.epsilon)}')
    if table.records != (0,):
        parts.append(f'N = {column.records}' if column.records else 'all N')
    return f'{" ".join(parts)}: {FIGURES[column.figure]}'


def _head(made: Page) -> list[str]:
    names = [heading(column, made.table) for column in made.table.columns]
    if made.setup.scale.is_smoke:
        return [rehearsal(made.table), 'mode', *(f'for {name}' for name in names)]
    return ['method', 'figures', 'its ε', *names]


def rehearsal(table: Table) -> str:
    """What a table is at `smoke`."""
    rows = set(table.data) == {'credit'}
    return f'rehearsal on stand-in {"rows" if rows else "digits"}'


def _body(made: Page) -> list[list[str]]:
    if made.setup.scale.is_smoke:
        return [
            _rehearsed(each, made)
            for each in made.lines
            if each.kind != 'printed' and not each.kind.endswith(BEST)
        ]
    return [
        [
            _label(line.row, made.table),
            line.kind,
            line.epsilon,
            *(shown(figure) for figure in line.cells),
        ]
        for line in made.lines
    ]


def _rehearsed(line: Line, made: Page) -> list[str]:
    """A line without a figure: whether its runs ran, or why not."""
    there = zip(line.cells, line.failures, strict=True)
    cells = ['ran' if figure else _failed(why) for figure, why in there]
    label = _label(line.row, made.table).replace(', ε =', ', for ε =')
    return [label, line.kind.removesuffix(', here'), *cells]


def _failed(why: str) -> str:
    text = textwrap.shorten(why.replace('|', '/'), LONGEST, placeholder=' ...')
    return f'failed: {text}' if why else ABSENT


def _label(row: Row, table: Table) -> str:
    """A row's name; with its epsilon where columns have none."""
    if table.epsilons != (None,) or row.strategy:
        return row.label
    return f'{row.label}, ε = {number(row.epsilons[0])}'


def _notes(made: Page) -> list[str]:
    done, all_runs, lacking = made.counts
    notes = [f'{done} of {all_runs} runs are done.']
    if lacking:
        titles = ', '.join(DATA_SETS[name].title for name in lacking)
        notes.append(f'Data that are not there: {titles}.')
    if made.unmeasured:
        names = ', '.join(FIGURES[name] for name in made.unmeasured)
        notes.append(f'No finished run has a figure of {names}: their logs say why.')
    if made.table.note:
        notes.append(made.table.note)
    counts = {
        each.figures[COMPARED].value for each in made.found if COMPARED in each.figures
    }
    if len(counts) > 1:
        notes.append(
            f'Distances are of {min(counts):.0f} to {max(counts):.0f} images a side: of fewer '
            'they are larger, so compare rows of the same number.'
        )
    if made.setup.scale.is_smoke:
        return [f'**{WARNING}**', *notes]
    if any(line.kind.endswith(BEST) for line in made.lines):
        notes.append(ABOUT_BEST)
    return [*notes, NOT_COVERED]


def _runs_head_and_body(made: Page) -> tuple[list[str], list[list[str]]]:
    """Accuracy and fidelity of each run, whatever the table prints."""
    body, seen = [], set()
    by_records = made.table.records != (0,)
    measured = {name for each in made.found for name in each.figures}
    also = [*ALSO, *(name for name in STANDARD if name in measured)]
    for cell, each in zip(made.cells, made.found, strict=True):
        key = (cell.row.label, cell.guarantee, cell.column._replace(figure=''))
        if key in seen or cell.row.strategy or not each.done:
            continue
        seen.add(key)
        body.append(
            [
                cell.row.label,
                '' if cell.row.method == 'real' else cell.guarantee.replace('_', ' '),
                DATA_SETS[cell.column.data].title,
                number(cell.epsilon),
                *[str(cell.column.records or 'all')] * by_records,
                *(shown(each.figures.get(name)) for name in also),
                f'{each.done} of {each.asked}',
            ]
        )
    names = [FIGURES[name] for name in also]
    head = ['method', 'mode', 'data', 'ε', *['N'] * by_records]
    return [*head, *names, 'generators'], body


def markdown(made: Page) -> str:
    """The page for people."""
    is_smoke = made.setup.scale.is_smoke
    about = f'{rehearsal(made.table).capitalize()}: ' if is_smoke else ''
    lines = [f'# {about}{made.table.title} ({made.table.source})', '']
    for note in _notes(made):
        lines += [note, '']
    lines += _markdown_table(_head(made), _body(made))
    head, body = _runs_head_and_body(made)
    if body and not is_smoke:
        lines += ['', '## Accuracy and fidelity of the runs', '']
        lines += _markdown_table(head, body)
    return '\n'.join(lines) + '\n'


def _markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    rows = [head, ['---'] * len(head), *body]
    return [f'| {" | ".join(row)} |' for row in rows]


def latex(made: Page) -> str:
    """A booktabs table, to be included."""
    head, body, columns = _head(made), _body(made), len(made.table.columns)
    rows = [' & '.join(map(_escaped, row)) + r' \\' for row in (head, *body)]
    notes = ' '.join(note.strip('*') for note in _notes(made))
    return '\n'.join(
        [
            '% needs booktabs, and an engine that reads UTF-8',
            rf'\begin{{tabular}}{{{"l" * (len(head) - columns)}{"r" * columns}}}',
            r'\toprule',
            rows[0],
            r'\midrule',
            *rows[1:],
            r'\bottomrule',
            r'\end{tabular}',
            f'% {notes}',
            '',
        ]
    )


LATEX = {
    '\\': r'\textbackslash{}',
    '&': r'\&',
    '%': r'\%',
    '_': r'\_',
    '#': r'\#',
    '$': r'\$',
    '{': r'\{',
    '}': r'\}',
    '^': r'\^{}',
    '~': r'\~{}',
    'ε': r'$\varepsilon$',
    'μ': r'$\mu$',
    'σ': r'$\sigma$',
    '∞': r'$\infty$',
    '±': r'$\pm$',
    '×': r'$\times$',
    '–': '--',
}


def _escaped(text: str) -> str:
    return ''.join(LATEX.get(letter, letter) for letter in text)


def comma_separated(made: Page) -> str:
    """A line for every figure, printed or measured; at `smoke` the table as it is."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    if made.setup.scale.is_smoke:
        writer.writerows([_head(made), *_body(made)])
        return text.getvalue()
    writer.writerow(
        [
            *('table', 'row', 'figures', 'epsilon_is', 'data', 'epsilon', 'records'),
            *('figure', 'value', 'std'),
        ]
    )
    for line in made.lines:
        for column, figure in zip(made.table.columns, line.cells, strict=True):
            if figure is None:
                continue
            std = '' if figure.std is None else figure.std
            writer.writerow(
                [
                    *(made.table.name, line.row.label, line.kind, line.epsilon),
                    *(column.data, line.row.epsilon(column), column.records or ''),
                    *(column.figure, figure.value, std),
                ]
            )
    return text.getvalue()


def as_json(made: Page) -> dict[str, Any]:
    """Everything, with the commands of all runs."""
    done, all_runs, lacking = made.counts
    columns = [
        {**column._asdict(), 'epsilon': _plain(column.epsilon)}
        for column in made.table.columns
    ]
    lines = [
        {
            'row': line.row.label,
            'figures': line.kind,
            'epsilon_is': line.epsilon,
            'cells': [figure and figure._asdict() for figure in line.cells],
        }
        for line in made.lines
    ]
    runs = {
        run.key: {
            'key': run.key,
            'done': run.is_done,
            'lacks': run.lacks,
            'row': cell.row.label,
            'guarantee': cell.guarantee,
            'data': cell.column.data,
            'epsilon': _plain(cell.epsilon),
            'generator': run.generator,
            'commands': run.commands,
        }
        for cell in made.cells
        for run in cell.runs
    }
    return {
        'table': made.table.name,
        'title': made.table.title,
        'source': made.table.source,
        'rehearsal': rehearsal(made.table) if made.setup.scale.is_smoke else None,
        'about_scale': made.setup.scale.about,
        'notes': [note.strip('*') for note in _notes(made)],
        'done': done,
        'runs_asked': all_runs,
        'lacking': lacking,
        'columns': columns,
        'lines': lines,
        'runs': list(runs.values()),
    }


def _plain(epsilon: float | None) -> float | str | None:
    """JSON has no infinity."""
    if epsilon is None:
        return None
    return 'inf' if math.isinf(epsilon) else epsilon
