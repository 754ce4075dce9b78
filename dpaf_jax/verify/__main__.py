"""Checks a release by itself: python -m dpaf_jax.verify --release=runs/digits/release.

Recomputes epsilon from privacy.json by dp-accounting's two accountants and by a third
one, rebuilds the privacy plan from config.json, compares every field, and looks at each
file. Exit status: 0 if everything fits, 1 if not, 2 if it could not be asked. Where the
release lies in a run's folder, the outcome is left there (verification.json).

It checks arithmetic and contents, not the execution: that training drew, clipped and
noised as the plan says cannot be seen in a release.
"""

import os
import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from dpaf_jax.runtime.command import errors_in_one_line, fail, parse, require, start

EXIT_REJECTED = 1
REMEDY = (
    'Name the folder that has privacy.json and generator.safetensors: a run has it as '
    'RUN/release when it has trained'
)

_RELEASE = flags.DEFINE_string(
    'release', None, 'Folder of the release.', allow_override=True
)


def main(argv: Sequence[str]) -> None:
    """The command."""
    (release,) = require(argv, {'release': _RELEASE.value})
    # Arithmetic and shapes only; must not wait for an accelerator.
    os.environ['JAX_PLATFORMS'] = 'cpu'
    with errors_in_one_line(None, '--release'):
        is_consistent = _verified(pathlib.Path(release))
    if not is_consistent:
        sys.exit(EXIT_REJECTED)


def _verified(directory: pathlib.Path) -> bool:
    from dpaf_jax.verify.verification import CAVEAT, holds_release, record, verify

    if not directory.is_dir() and not (directory.parent / 'stages.json').is_file():
        fail(f'{directory}: no such folder')
    _require_readable(directory)
    if not holds_release(directory):
        fail(f'{directory}: holds no release (yet). {REMEDY}')
    found = verify(directory)
    lines = [*found.checks, f'verdict: {found.verdict()}', CAVEAT]
    try:
        if path := record(directory, found):
            lines.append(f'outcome in {path}: --stage=report puts it into the report')
    except OSError as error:
        print(f'no outcome for the report: {error}', file=sys.stderr)
    print(*lines, sep='\n', flush=True)
    return found.passed


def _require_readable(directory: pathlib.Path) -> None:
    """What is closed to the reader is not rejected: it could not be asked."""
    for path in (directory, *directory.glob('*')):
        if path.exists() and not os.access(path, os.R_OK):
            fail(f'{path}: cannot be read. Open it to yourself, or copy the release')


def run() -> None:
    """Entry point."""
    start(main, parse)


if __name__ == '__main__':
    run()
