"""What every command does first: flags and their mistakes, the cache of programs, memory.

A flag whose name several commands share allows its override, so that a process may import
them all.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from absl import app, flags

from dpaf_jax.runtime.memory import keep_freed_memory

EXIT_BAD_INPUT = 2
EXIT_CTRL_C = 130  # as a shell reports SIGINT
CONSOLE = 'dpaf-jax'  # the command that has the others' names behind it


def start(
    main: Callable[[Sequence[str]], Any], parser: Callable[[Sequence[str]], list[str]]
) -> None:
    """Runs a command; Ctrl-C, where it does not listen itself, ends it without a traceback."""
    try:
        app.run(main, flags_parser=parser)
    except KeyboardInterrupt:
        print('stopped', file=sys.stderr)
        sys.exit(EXIT_CTRL_C)


def prepare_jax() -> None:
    """Compiles quickly, keeps programs between runs, memory between steps, the log short."""
    # Late, so that --help answers at once.
    from dpaf_jax.runtime.compilation_cache import keep_programs
    from dpaf_jax.runtime.gpu_compiler import compile_quickly

    keep_freed_memory()
    compile_quickly()
    keep_programs()
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
    text = ' '.join(message.split()).rstrip('.')
    fail(f'{text}. See {_spelling(argv[0])} --help')


def _spelling(program: str) -> str:
    """How a user calls a command: `dpaf-jax sample`, or by its module."""
    if program.partition(' ')[0] == CONSOLE:
        return program
    path = os.path.splitext(program)[0].removesuffix(f'{os.sep}__main__')
    return f'python -m {".".join(path.split(os.sep)[-2:])}'  # package and file
