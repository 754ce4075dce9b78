"""The flag --config of the commands that take one, and what can be wrong with its file."""

import difflib
import logging
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from absl import flags
from ml_collections import ConfigDict, config_flags

from dpaf_jax.runtime import command
from dpaf_jax.runtime.command import HOME

FIELDS = (
    'dpaf_jax.config.defaults() has all; docs/reference/fields.md says what they are.'
)
MOST_MEANT = 3  # fields in one question
CONFIG = config_flags.DEFINE_config_file(
    'config',
    None,
    'A config file, then a colon and its arguments: configs/recommended.py:digits,1 or '
    "configs/mnist.py. One of the package's own is found from anywhere. "
    '--config.FIELD=VALUE replaces a field: --config.privacy.epsilon=1.',
)


def parse(argv: Sequence[str]) -> list[str]:
    """As `command.parse`, and also reads the config file."""
    command.help_if_asked(argv)
    argv = [_located(argument) for argument in argv]
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


def stated() -> tuple[str, ...]:
    """Names of the fields that the command line replaces, such as 'privacy.epsilon'."""
    return tuple(config_flags.get_override_values(flags.FLAGS['config']))


def _located(argument: str) -> str:
    """A config that is not there by its path is the package's own of that name."""
    flag, equals, value = '', '', argument  # what follows a flag without '='
    if argument.startswith('-'):
        flag, equals, value = argument.partition('=')
    path, colon, rest = value.partition(':')
    own = os.path.join(HOME, path)
    asked = flag.lstrip('-') in ('', 'config') and path.startswith('configs/')
    if not asked or os.path.exists(path) or not os.path.exists(own):
        return argument
    return f'{flag}{equals}{own}{colon}{rest}'


def _make_importable(argv: Sequence[str]) -> None:
    """A config imports its siblings as `configs.<name>`, from wherever it is run."""
    for value in _files(argv):
        path = os.path.abspath(value.partition(':')[0])
        sys.path.append(os.path.dirname(os.path.dirname(path)))
    command.own_configs()


def _files(argv: Sequence[str]) -> Iterator[str]:
    """What --config is given, as often as it is."""
    for argument, following in zip(argv, [*argv[1:], ''], strict=True):
        name, has_value, value = argument.lstrip('-').partition('=')
        if name == 'config':
            yield value if has_value else following


def _fail_at(argv: Sequence[str], error: Exception) -> NoReturn:
    logging.getLogger('absl').debug('%s', traceback.format_exc())
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    unknown = re.match(r"\W*'(\w+)\W", str(error))
    if unknown and isinstance(error, LookupError | AttributeError):
        for flag in (argument.partition('=')[0] for argument in argv):
            if flag.startswith('--config.') and unknown[1] in flag.split('.'):
                meant = _meant(flag, unknown[1], str(error)) or _deeper(flag, argv)
                command.fail(f'{flag}: no such field. {meant or FIELDS}')
    bad = re.match(r'flag (--config[.][^=]+)=(.*): (could not|invalid)', str(error))
    if bad:
        kind = 'whole number' if bad[3] == 'invalid' else 'number'
        command.fail(f'{bad[1]}: is {bad[2]!r}. Give a {kind}.')
    absent = re.search(r"No such file or directory: '(.+)'", str(error))
    if absent and isinstance(error, OSError):
        command.fail(f'--config: {absent[1]} is not there. {_near(absent[1])}')
    if isinstance(error, OSError):
        lines = ['--config:', lines[-1].rpartition('failure to load: ')[-1]]
    elif not isinstance(error, flags.Error):
        lines[:0] = [f'--config: {type(error).__name__}:']
    elif any(line.startswith('Traceback') for line in lines):
        # A config's own complaint, which absl wraps into a traceback: its last line.
        own = lines[-1].removeprefix('ValueError: ')
        lines = [lines[0].replace('Error whilst parsing config file:', ''), own]
    command.fail_with_help(argv, ' '.join(lines))


def _meant(flag: str, unknown: str, text: str) -> str:
    """The field that ml_collections takes a name for, if it knows one."""
    found = re.search(r'Did you mean "([^"]+)"', text)
    if not found:
        return ''
    parts = [found[1] if part == unknown else part for part in flag.split('.')]
    return f'Did you mean {".".join(parts)}?'


def _deeper(flag: str, argv: Sequence[str]) -> str:
    """The fields of this name that stand in a section; those of the method first."""
    for file in _files(argv):
        config: ConfigDict = flags.FLAGS['config'].parser.parse(file)
        own = f'--config.{config.get("method")}.'
        paths = [f'--config.{path}' for path in _paths(config)]
        found = [p for p in paths if p.endswith(flag.removeprefix('--config'))]
        found.sort(key=lambda path: not path.startswith(own))
        if found:
            return f'Did you mean {" or ".join(found[:MOST_MEANT])}?'
    return ''


def _paths(config: ConfigDict) -> Iterator[str]:
    """All fields with their sections: 'privacy.epsilon'."""
    for name, value in config.items():
        below = _paths(value) if isinstance(value, ConfigDict) else ()
        yield from (f'{name}.{path}' for path in below)
        yield name


def _near(path: str) -> str:
    """The package's own config whose name is nearest, where one is near."""
    names = [file.stem for file in pathlib.Path(HOME, 'configs').glob('[a-z]*.py')]
    found = difflib.get_close_matches(pathlib.Path(path).stem, names, 1)
    return (
        f'Did you mean configs/{found[0]}.py?' if found else 'Give a file of configs/.'
    )
