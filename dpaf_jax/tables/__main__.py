"""Fills a paper's table, or our own: python -m dpaf_jax.tables --help.

    python -m dpaf_jax.tables --list
    python -m dpaf_jax.tables --table=dpaf/1 --scale=cpu --data=FOLDER --out=runs/tables

Each run is made once, whichever tables it stands in, and is taken up again where it was
stopped. What is written compares with real test images: no epsilon covers it.
"""

import pathlib
import re
import signal
import sys
from collections.abc import Sequence

from absl import flags

from dpaf_jax.runtime.command import (
    errors_in_one_line,
    fail_with_help,
    parse,
    start,
)
from dpaf_jax.runtime.errors import UserError

PLACE = 'runs/tables'
EXIT_FAILED = 1  # some runs
ENDED_BY_SIGNAL = 128  # plus its number, as shells report it
_LIST = flags.DEFINE_bool('list', False, 'Names all tables, and stops.')
_TABLE = flags.DEFINE_list(
    'table', [], "Such as dpaf/1; several; 'dpaf': all of its paper; or all."
)
_SCALE = flags.DEFINE_enum(
    'scale', 'smoke', ['smoke', 'cpu', 'gpu', 'paper'], 'How much computing.'
)
_OUT = flags.DEFINE_string(
    'out',
    None,
    f'Folder of runs and tables; private. Default: {PLACE}.',
    allow_override=True,
)
_DATA = flags.DEFINE_string(
    'data',
    None,
    'Folder with mnist.npz, celeba/, ...; what is not there comes from TFDS.',
    allow_override=True,
)
_INCEPTION = flags.DEFINE_string(
    'inception_weights',
    '',
    "pytorch-fid's file of weights: runs also measure FID and Inception score.",
    allow_override=True,
)
_JOBS = flags.DEFINE_integer(
    'jobs', 1, 'Runs at a time; 0: none, writes what there is.', lower_bound=0
)
_ROWS = flags.DEFINE_multi_string(
    'row', [], 'Runs this row alone, such as DPDM; again for each further one.'
)
_PART = flags.DEFINE_string(
    'part', '1/1', 'i/n: every n-th run, from the i-th; for an array of jobs.'
)


def main(argv: Sequence[str]) -> int:
    """The command."""
    if not _LIST.value and not _TABLE.value:
        fail_with_help(argv, '--table or --list is needed')
    with errors_in_one_line(_out(), '--out'):
        return _listed() if _LIST.value else _filled()


def _listed() -> int:
    from dpaf_jax.tables.papers import TABLES

    for name, table in TABLES.items():
        here = sum(bool(row.method) for row in table.rows)
        print(f'{name:<13} {table.title}; {here} of {len(table.rows)} rows here')
    return 0


def _filled() -> int:
    # Imported late, so that --help and a mistyped flag answer at once.
    from dpaf_jax.tables.fill import fill
    from dpaf_jax.tables.papers import find
    from dpaf_jax.tables.runs import Setup
    from dpaf_jax.tables.scales import SCALES

    tables = {table.name: table for name in _TABLE.value for table in find(name)}
    data = _folder(_DATA.value)
    weights = _file(_INCEPTION.value)
    setup = Setup(_SCALE.value, SCALES[_SCALE.value], _out(), data, weights)
    is_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    for number in (signal.SIGTERM, *[signal.SIGHUP] * (not is_nohup)):
        signal.signal(number, lambda heard, _: sys.exit(ENDED_BY_SIGNAL + heard))
    share = _part(_PART.value)
    failed = fill(list(tables.values()), setup, _JOBS.value, share, _ROWS.value)
    return EXIT_FAILED if failed else 0


def _out() -> pathlib.Path:
    return pathlib.Path(_OUT.value or PLACE).expanduser()


def _folder(text: str | None) -> pathlib.Path | None:
    if text is None:
        return None
    folder = pathlib.Path(text).expanduser()
    if not folder.is_dir():
        raise UserError(
            '--data', f'{folder} is no folder', "Give the data sets' folder"
        )
    return folder


def _file(text: str) -> str:
    """A path that holds wherever a run is started; the run itself reads the file."""
    path = pathlib.Path(text).expanduser()
    if text and not path.is_file():
        problem = f'{path} is no file'
        raise UserError('--inception_weights', problem, "Give pytorch-fid's file")
    return str(path.resolve()) if text else ''


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r'(\d+)/(\d+)', text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UserError(
            '--part', f'is {text!r}', 'Write it like 3/8: the third of eight'
        )
    return int(found[1]), int(found[2])


def run() -> None:
    """Entry point."""
    start(main, parse)


if __name__ == '__main__':
    run()
