"""A table as lines: each row as it is printed, and as it is run here."""

import math
from typing import NamedTuple

from dpaf_jax.tables.measured import FIGURES, Found, found
from dpaf_jax.tables.runs import Cell, Setup, cells, forms
from dpaf_jax.tables.scales import AS_PUBLISHED, CERTIFIED
from dpaf_jax.tables.spec import COUNTERPARTS, Column, Figure, Row, Table, printed_in

ABSENT = '–'
MISSING = 'not implemented here'
DERIVED = 'average', 'calibrated'  # of other figures
BEST = 'legacy_max'  # behind a line's kind
ABOUT_BEST = (
    f'{BEST} is the maximum over epochs on the real test images, which older papers print. '
    "It selects on the test set: the line above it has the last epoch's."
)
WARNING = (
    'smoke: a rehearsal. Embedded data, a few steps and one epsilon stand in for '
    'everything. It shows which rows run, and no figure.'
)


class Line(NamedTuple):
    """One line: a row as it is printed, or as it is run here.

    Attributes:
        row: of the table.
        kind: 'printed', 'as published, here', 'certified, here', or 'here'; the latter also
            with `BEST` behind them.
        epsilon: whether it holds.
        cells: a figure for each column, or None.
        failures: why its runs failed, for each column; '' where none did.
    """

    row: Row
    kind: str
    epsilon: str
    cells: tuple[Figure | None, ...]
    failures: tuple[str, ...]


class Page(NamedTuple):
    """A table with what is there of it.

    Attributes:
        table: which.
        setup: at which scale.
        cells: those that are implemented, one for each column.
        found: what each has.
        lines: the whole, in order.
    """

    table: Table
    setup: Setup
    cells: list[Cell]
    found: list[Found]
    lines: list[Line]

    @property
    def counts(self) -> tuple[int, int, list[str]]:
        """Runs that are done, all runs, and data sets that are not there."""
        runs = {run.key: run for cell in self.cells for run in cell.runs}
        lacking = sorted({run.lacks for run in runs.values() if run.lacks})
        return sum(run.is_done for run in runs.values()), len(runs), lacking

    @property
    def unmeasured(self) -> list[str]:
        """Figures of the columns that finished runs have not, whichever row they are of.

        FID and the Inception score are not asked for: they need weights of one's own.
        """
        measured = [
            (cell.column.figure, cell.column.figure in each.figures)
            for cell, each in zip(self.cells, self.found, strict=True)
            if each.done and cell.column.figure not in (*COUNTERPARTS, *DERIVED)
        ]
        there = {figure for figure, is_there in measured if is_there}
        return list(dict.fromkeys(f for f, _ in measured if f not in there))


def page(table: Table, setup: Setup) -> Page:
    """Reads all that is there of a table."""
    classifiers = tuple(
        name
        for name in table.figures
        if name in FIGURES and name not in ('fid', *DERIVED)
    )
    classifiers = classifiers if 'average' in table.figures else ()
    there = list(cells(table, setup))
    each = [found(cell, setup.scale, classifiers) for cell in there]
    lines = [
        line
        for row in table.rows
        for line in _lines(table, row, list(zip(there, each, strict=True)))
    ]
    return Page(table, setup, there, each, _calibrated(table, lines))


def _lines(table: Table, row: Row, there: list[tuple[Cell, Found]]) -> list[Line]:
    lines, none = [], ('',) * len(table.columns)
    printed = tuple(printed_in(table, row, column) for column in table.columns)
    if any(printed):
        lines.append(Line(row, 'printed', row.printed_epsilon, printed, none))
    for guarantee in forms(row):
        mine = {
            cell.column: each
            for cell, each in there
            if cell.row is row and cell.guarantee == guarantee
        }
        kind = 'as published, here' if guarantee == AS_PUBLISHED else 'certified, here'
        kind = 'here' if row.method == 'real' else kind
        figures = tuple(_figure(mine.get(column), column) for column in table.columns)
        told = [mine.get(column) for column in table.columns]
        failures = tuple(each.failure if each else '' for each in told)
        lines.append(Line(row, kind, _epsilon(row, mine), figures, failures))
        best = tuple(_best(mine.get(column), column) for column in table.columns)
        if any(best):
            lines.append(
                Line(row, f'{kind}; {BEST}', _epsilon(row, mine), best, failures)
            )
    if not forms(row):
        lines.append(Line(row, MISSING, '', (None,) * len(table.columns), none))
    return lines


def _figure(there: Found | None, column: Column) -> Figure | None:
    return there.figures.get(column.figure) if there else None


def _best(there: Found | None, column: Column) -> Figure | None:
    return there.legacy_max.get(column.figure) if there else None


def _epsilon(row: Row, there: dict[Column, Found]) -> str:
    """Whether it holds, by what the releases say."""
    if row.strategy or row.method == 'real':
        return 'none'
    told = {column: each.guarantee for column, each in there.items() if each.guarantee}
    if not told:
        return ABSENT
    missing = [column for column in told if told[column] != CERTIFIED]
    if not missing:
        return 'holds'
    if len(missing) == len(told):
        return 'none'
    are_infinite = all(math.isinf(row.epsilon(column) or 0) for column in missing)
    return 'holds where finite' if are_infinite else 'holds in part'


def _calibrated(table: Table, lines: list[Line]) -> list[Line]:
    """Lines with `calibrated`: the average's share of that of real images."""
    if 'calibrated' not in table.figures:
        return lines
    columns = table.columns
    real = next(
        line for line in lines if line.row.method == 'real' and 'here' in line.kind
    )
    made = []
    for line in lines:
        figures = list(line.cells)
        for i, column in enumerate(columns):
            j = columns.index(column._replace(figure='average'))
            own, best = line.cells[j], real.cells[j]
            if column.figure == 'calibrated' and 'here' in line.kind and own and best:
                figures[i] = Figure(own.value / best.value)
        made.append(line._replace(cells=tuple(figures)))
    return made
