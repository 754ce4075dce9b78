"""Attacks a config's mechanisms with canaries, to refute its epsilon: no data needed.

    python -m dpaf_jax.audit --config=configs/digits.py --out=audits/digits

Writes audit.json and audit.png. Exit status: 0 if no violation was found, 1 if one was,
2 for bad input. A violation is called in an honest program with a chance below 0.1 %.
"""

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpaf_jax.runtime.command import (
    errors_in_one_line,
    fail,
    fail_with_help,
    prepare_jax,
    require,
    require_devices,
    start,
)
from dpaf_jax.runtime.config_flag import CONFIG, parse
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import require_place

MOST_DEVICES = 64  # that a CPU pretends to be; of a thousand XLA runs out of threads

_OUT = flags.DEFINE_string(
    'out', None, 'Folder for audit.json and audit.png.', allow_override=True
)
_RELEASE = flags.DEFINE_string(
    'release',
    None,
    'Folder of a release: its config is audited, in place of --config.',
    allow_override=True,
)
_DEVICES = flags.DEFINE_list(
    'devices', ['1', '8'], 'Numbers of devices on which mechanisms are checked.'
)
_REPETITIONS = flags.DEFINE_integer(
    'repetitions', 2000, 'Of each attack, on either side.', lower_bound=10
)
_RUNS = flags.DEFINE_integer(
    'runs',
    40,
    'Tiny trainings on either side, for the black-box audit of the generator; 0: none. '
    'The default can refute an epsilon below 0.3 alone; 200 one below 2.',
    lower_bound=0,
)
EXIT_VIOLATION = 1


def main(argv: Sequence[str]) -> None:
    """The command."""
    (place,) = require(argv, {'out': _OUT.value})
    if CONFIG.value is None and _RELEASE.value is None:
        fail_with_help(argv, '--config or --release is needed')
    if CONFIG.value is not None and _RELEASE.value is not None:
        fail_with_help(argv, '--config and --release: both are given. Give one of them')
    if not all(number.isdecimal() and int(number) for number in _DEVICES.value):
        fail(f'--devices: is {",".join(_DEVICES.value)}. Give numbers like 1,8.')
    numbers = [int(number) for number in _DEVICES.value]
    if max(numbers) > MOST_DEVICES:
        fail(f'--devices: is {max(numbers)}. Give at most {MOST_DEVICES}.')
    # Only the CPU obeys: it then pretends to be as many devices.
    os.environ['XLA_FLAGS'] = (
        os.environ.get('XLA_FLAGS', '')
        + f' --xla_force_host_platform_device_count={max(numbers)}'
    )
    prepare_jax()
    with errors_in_one_line(pathlib.Path(place), '--out'):
        require_devices()
        status = _audit(pathlib.Path(place), numbers)
    sys.exit(status)


def _audit(out: pathlib.Path, devices: list[int]) -> int:
    # Imported late, so that --help and a mistyped flag answer at once.
    from dpaf_jax.audit import report, session

    require_place(out, '--out')
    made = session.audit(
        _config(),
        devices=devices,
        repetitions=_REPETITIONS.value,
        runs=_RUNS.value,
        on_check=lambda check: print(
            f'{check.mechanism}: {check.kind}, {check.case}', file=sys.stderr
        ),
    )
    try:
        print(report.table(made), flush=True)  # whatever becomes of the files
    finally:  # also where whoever reads that has seen enough of it
        report.write_audit(made, out)
    return EXIT_VIOLATION if made.violations else 0


def _config() -> Any:
    """The config to audit, with nothing left open to data: an audit reads none."""
    from dpaf_jax.config import from_config_dict, undecided
    from dpaf_jax.release.bundle import load_release

    if _RELEASE.value is not None:
        return load_release(_RELEASE.value).config
    if missing := undecided(from_config_dict(CONFIG.value, is_open=True)):
        raise UserError(
            '--config',
            f'leaves {", ".join(missing)} to the data, which an audit does not read',
            f'State them, as in --config.{missing[0]}=VALUE, or audit a release: '
            '--release=RUN/release',
        )
    return from_config_dict(CONFIG.value)


def run() -> None:
    """Entry point."""
    flags.declare_key_flag('config')  # so that --help lists it
    start(main, parse)


if __name__ == '__main__':
    run()
