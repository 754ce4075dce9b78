"""What every command with a config does first: flags, their mistakes, the compile cache."""

import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from absl import flags
from ml_collections import config_flags

CONFIG = config_flags.DEFINE_config_file(
    'config', None, 'A file such as configs/mnist.py (or configs/celeba64.py:hair).'
)
EXIT_BAD_INPUT = 2


def prepare_jax() -> None:
    """Keeps compiled programs between runs, and JAX's search for devices out of the log.

    Programs hold shapes and code, never data.
    """
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
    """Absl's parser, but every mistake is one message that names the flag."""
    _make_importable(argv)
    try:
        rest: list[str] = flags.FLAGS(list(argv))
        if CONFIG.value is not None:
            _ = CONFIG.value.method  # a file that cannot be read is noticed only here
        return rest
    except flags.Error as error:
        _fail_at(argv, error)
    except Exception as error:  # a config file is a program: anything may happen
        _fail_at(argv, error)


def _make_importable(argv: Sequence[str]) -> None:
    """A config imports its siblings as `configs.<name>`, from wherever it is run."""
    package = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.dirname(package))
    for argument, following in zip(argv, [*argv[1:], ''], strict=True):
        name, has_value, value = argument.lstrip('-').partition('=')
        if name == 'config':
            path = (value if has_value else following).partition(':')[0]
            sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(path))))


def _fail_at(argv: Sequence[str], error: Exception) -> NoReturn:
    logging.getLogger('absl').debug('%s', traceback.format_exc())
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    unknown = re.match(r"\W*'(\w+)\W", str(error))
    if unknown and isinstance(error, LookupError | AttributeError):
        for flag in (argument.partition('=')[0] for argument in argv):
            if flag.startswith('--config.') and unknown[1] in flag.split('.'):
                fail(f'{flag}: no such field. configs/default.py lists them all.')
    if isinstance(error, OSError):
        lines = ['--config:', lines[-1].rpartition('failure to load: ')[-1]]
    elif not isinstance(error, flags.Error):
        lines[:0] = [f'--config: {type(error).__name__}:']
    elif any(line.startswith('Traceback') for line in lines):
        # A config's own complaint, which absl wraps into a traceback: its last line.
        lines = [lines[0].replace('Error whilst parsing config file:', ''), lines[-1]]
    text = ' '.join(' '.join(lines).split()).rstrip('.')
    name = os.path.basename(argv[0]).removesuffix('.py').rpartition('.')[2]
    fail(f'{text}. See python -m dpaf_jax.{name} --help')
