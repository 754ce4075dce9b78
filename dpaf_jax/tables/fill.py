"""Fills tables: runs what is missing, and writes each page after each run."""

import pathlib
from collections.abc import Sequence

from dpaf_jax.runtime.files import write_bytes, write_json, write_text
from dpaf_jax.tables import data_sets, formats, pictures
from dpaf_jax.tables.execute import Outcome, execute, wanted
from dpaf_jax.tables.page import Page, number, page
from dpaf_jax.tables.runs import Cell, Setup, cells
from dpaf_jax.tables.spec import Table


def fill(
    tables: Sequence[Table], setup: Setup, jobs: int, part: tuple[int, int]
) -> list[Outcome]:
    """Runs and writes.

    Args:
        tables: to be filled.
        setup: scale and folders.
        jobs: runs at a time; 0: none.
        part: (i, n), this one's share of the runs; with n > 1 no table is written, since
            the others would write it at the same time.

    Returns:
        The runs that failed.

    Raises:
        UserError: data are not what they have to be.
    """
    of = {table.name: list(cells(table, setup)) for table in tables}
    every = [run for each in of.values() for cell in each for run in cell.runs]
    for name in sorted({run.lacks for run in every if run.lacks}):
        print(f'not there, and left out: {data_sets.wanted(name)}')
    todo = wanted(every, part) if jobs else []
    where, writes = _first_cells(of), part == (1, 1)
    print(f'{len({run.key for run in every})} runs, {len(todo)} to be made')
    counted = 0

    def on_end(outcome: Outcome) -> None:
        nonlocal counted
        counted += 1
        print(_told(outcome, where[outcome.run.key], counted, len(todo)), flush=True)
        for table in tables:
            if any(
                outcome.run.key == run.key for c in of[table.name] for run in c.runs
            ):
                write(page(table, setup), with_pictures=False)

    failed = execute(todo, jobs, on_end) if todo else []
    if not writes:
        print('--jobs=0 without --part writes the tables')
    for table in tables if writes else ():
        made = page(table, setup)
        folder = write(made, with_pictures=True)
        done, asked, _ = made.counts
        print(f'{table.name}: {done} of {asked} runs; {folder}/table.md')
    return failed


def _first_cells(of: dict[str, list[Cell]]) -> dict[str, tuple[str, Cell]]:
    """By run a table and cell that it stands in."""
    found: dict[str, tuple[str, Cell]] = {}
    for name, each in of.items():
        for cell in each:
            for run in cell.runs:
                found.setdefault(run.key, (name, cell))
    return found


def _told(outcome: Outcome, place: tuple[str, Cell], i: int, last: int) -> str:
    name, cell = place
    text = (
        f'[{i}/{last}] {name} {cell.row.label}, {cell.guarantee}, {cell.column.data}, '
        f'ε = {number(cell.epsilon)}: '
    )
    if outcome.status:
        return f'{text}failed, {outcome.reason} See {outcome.run.log}'
    return f'{text}{outcome.minutes:.1f} min'


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
