"""What every command does first: flags and their mistakes, the compile cache, memory.

A flag whose name several commands share allows its override, so that a process may import
them all.
"""

import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from absl import flags

from dpaf_jax.allocation import keep_freed_memory

EXIT_BAD_INPUT = 2


def prepare_jax() -> None:
    """Keeps compiled programs between runs, memory between steps, and the log short.

    Programs hold shapes and code, never data.
    """
    keep_freed_memory()
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    os.environ.setdefault(
        'JAX_COMPILATION_CACHE_DIR', os.path.join(cache, 'dpaf_jax', 'xla')
    )
    os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.2')
    logging.getLogger('jax').setLevel(logging.WARNING)


def fail(message: str) -> NoReturn:
    """Ends the command with one line and the status for bad input."""
    print(f'error: {message}', file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)


def parse(argv: Sequence[str]) -> list[str]:
    """Absl's parser, but a mistake is one message that names the flag."""
    try:
        rest: list[str] = flags.FLAGS(list(argv))
        return rest
    except flags.Error as error:
        fail_with_help(argv, str(error))


def fail_with_help(argv: Sequence[str], message: str) -> NoReturn:
    """As `fail`, in one line that ends with where to read about the command's flags."""
    name = os.path.basename(argv[0]).removesuffix('.py').rpartition('.')[2]
    text = ' '.join(message.split()).rstrip('.')
    fail(f'{text}. See python -m dpaf_jax.{name} --help')
