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

from dpaf_jax.runtime.command import fail, parse, require, start

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
    directory = pathlib.Path(release)
    if not directory.is_dir() and not (directory.parent / 'stages.json').is_file():
        fail(f'{directory}: no such folder')
    # Arithmetic and shapes only; must not wait for an accelerator.
    os.environ['JAX_PLATFORMS'] = 'cpu'
    from dpaf_jax.verify.verification import CAVEAT, holds_release, record, verify

    if not holds_release(directory):
        fail(f'{directory}: holds no release (yet). {REMEDY}')
    found = verify(directory)
    print(*found.checks, f'verdict: {found.verdict()}', CAVEAT, sep='\n')
    try:
        if path := record(directory, found):
            print(f'outcome in {path}: --stage=report puts it into the report')
    except OSError as error:
        print(f'no outcome for the report: {error}', file=sys.stderr)
    if not found.passed:
        sys.exit(EXIT_REJECTED)


def run() -> None:
    """Entry point."""
    start(main, parse)


if __name__ == '__main__':
    run()
