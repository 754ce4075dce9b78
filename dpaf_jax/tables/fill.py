"""Fills tables: runs what is missing, and writes each page after each run."""

import pathlib
from collections.abc import Collection, Sequence

from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import write_bytes, write_json, write_text
from dpaf_jax.runtime.text import number
from dpaf_jax.tables import data_sets, formats, pictures
from dpaf_jax.tables.execute import Outcome, execute, wanted
from dpaf_jax.tables.page import Page, page
from dpaf_jax.tables.runs import Cell, Run, Setup, cells
from dpaf_jax.tables.spec import Table


def fill(
    tables: Sequence[Table],
    setup: Setup,
    jobs: int,
    part: tuple[int, int],
    rows: Collection[str] = (),
) -> list[Outcome]:
    """Runs and writes.

    Args:
        tables: to be filled.
        setup: scale and folders.
        jobs: runs at a time; 0: none.
        part: (i, n), this one's share of the runs; with n > 1 no table is written, since
            the others would write it at the same time.
        rows: labels of the rows that are run; none: all.

    Returns:
        The runs that failed.

    Raises:
        UserError: data are not what they have to be, or no row has such a label.
    """
    of = {table.name: list(cells(table, setup)) for table in tables}
    every = _asked(of, rows)
    _tell_what_lacks(every, needs_some=bool(jobs))
    todo = wanted(every, part) if jobs else []
    where, writes = _first_cells(of), part == (1, 1)
    count = f'{len({run.key for run in every})} runs, {len(todo)} to be made'
    print(f'{count}, {jobs} at a time' if todo else count, flush=True)
    names = {
        run.key: f'[{i}/{len(todo)}] {_name(*where[run.key], setup)}'
        for i, run in enumerate(todo, 1)
    }

    def on_start(run: Run) -> None:
        print(f'{names[run.key]}: begins; its log is {run.log}', flush=True)

    def on_end(outcome: Outcome) -> None:
        print(f'{names[outcome.run.key]}: {_told(outcome)}', flush=True)
        for table in tables if writes else ():
            if outcome.run.key in {run.key for c in of[table.name] for run in c.runs}:
                try:
                    write(page(table, setup), with_pictures=False)
                except OSError as error:  # it is written again at the end
                    print(f'{table.name} was not written now: {error}', flush=True)

    failed = execute(todo, jobs, on_end, on_start) if todo else []
    if not writes:
        print('--jobs=0 without --part writes the tables')
    for table in tables if writes else ():
        made = page(table, setup)
        folder = write(made, with_pictures=True)
        done, asked, _ = made.counts
        print(f'{table.name}: {done} of {asked} runs; {folder}/table.md')
    return failed


def _asked(of: dict[str, list[Cell]], rows: Collection[str]) -> list[Run]:
    """The runs of these rows; of all, where none is named."""
    every = [cell for each in of.values() for cell in each]
    _check_rows(rows, [cell.row.label for cell in every])
    chosen = [cell for cell in every if not rows or cell.row.label in rows]
    return [run for cell in chosen for run in cell.runs]


def _tell_what_lacks(runs: Sequence[Run], needs_some: bool) -> None:
    """Names data sets that are not there; UserError where some are needed and none is."""
    lacking = sorted({run.lacks for run in runs if run.lacks})
    if needs_some and runs and all(run.lacks for run in runs):
        needed = '; '.join(map(data_sets.wanted, lacking))
        problem = 'has no data set of these tables'
        raise UserError('--data', problem, f'Give a folder with {needed}')
    for name in lacking:
        print(f'not there, and left out: {data_sets.wanted(name)}')


def _check_rows(rows: Collection[str], labels: Sequence[str]) -> None:
    for row in rows:
        if row not in labels:
            choices = ' | '.join(dict.fromkeys(labels))
            problem = (
                f'is {row!r}, and no row of these tables that can run is called so'
            )
            raise UserError('--row', problem, f'Choose one of {choices}')


def _first_cells(of: dict[str, list[Cell]]) -> dict[str, tuple[str, Cell]]:
    """By run a table and cell that it stands in."""
    found: dict[str, tuple[str, Cell]] = {}
    for name, each in of.items():
        for cell in each:
            for run in cell.runs:
                found.setdefault(run.key, (name, cell))
    return found


def _name(table: str, cell: Cell, setup: Setup) -> str:
    """What a run is; at `smoke` neither the data nor epsilon are those of the column."""
    text = f'{table} {cell.row.label}, {cell.guarantee.replace("_", " ")}'
    if setup.scale.is_smoke:
        return f'{text}, stand-in for {cell.column.data}'
    return f'{text}, {cell.column.data}, ε = {number(cell.epsilon)}'


def _told(outcome: Outcome) -> str:
    if outcome.status:
        return f'failed, {outcome.reason} See {outcome.run.log}'
    return f'ended after {outcome.minutes:.1f} min'


def write(made: Page, *, with_pictures: bool) -> pathlib.Path:
    """Writes a page in every format; returns its folder."""
    folder = made.setup.out / made.setup.name / made.table.name.replace('/', '-')
    write_text(folder / 'table.md', formats.markdown(made))
    write_text(folder / 'table.tex', formats.latex(made))
    write_text(folder / 'table.csv', formats.comma_separated(made))
    write_json(folder / 'table.json', formats.as_json(made))
    if with_pictures:
        for name, png in pictures.all_pictures(made):
            write_bytes(folder / f'{name}.png', png)
    return folder
