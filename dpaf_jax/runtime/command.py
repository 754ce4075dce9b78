"""What every command does first: flags and their mistakes, the cache of programs, memory.

A flag whose name several commands share allows its override, so that a process may import
them all.
"""

import contextlib
import importlib.util
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from absl import app, flags

from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import refusal
from dpaf_jax.runtime.memory import keep_freed_memory

EXIT_BAD_INPUT = 2
EXIT_PIPE = 141  # as a shell reports SIGPIPE
# Another process is gone, or is not gone yet: launch scripts start again.
EXIT_AGAIN = 144
EXIT_CTRL_C = 130  # as a shell reports SIGINT
CONSOLE = 'dpaf-jax'  # the command that has the others' names behind it
# Where `configs` stands beside the package: in a clone and where the wheel is installed.
HOME = str(pathlib.Path(__file__).resolve().parents[2])
HELP = ('--help', '-help', '-?')


def start(
    main: Callable[[Sequence[str]], Any], parser: Callable[[Sequence[str]], list[str]]
) -> None:
    """Runs a command that has flags alone.

    Ctrl-C, where it does not listen itself, ends it without a traceback.
    """

    def parsed(argv: Sequence[str]) -> list[str]:
        rest = parser(argv)
        if len(rest) > 1:
            fail(f'unknown argument {rest[1]!r}: flags start with --')
        return rest

    try:
        app.run(main, flags_parser=parsed)
    except KeyboardInterrupt:
        print('stopped', file=sys.stderr)
        sys.exit(EXIT_CTRL_C)
    except BrokenPipeError:  # whoever reads the output has seen enough
        flush()
        sys.exit(EXIT_PIPE)


def prepare_jax() -> None:
    """Compiles quickly, keeps programs between runs, memory between steps, the log short."""
    # Late, so that --help answers at once.
    from dpaf_jax.runtime.compilation_cache import keep_programs
    from dpaf_jax.runtime.gpu_compiler import compile_quickly

    keep_freed_memory()
    compile_quickly()
    keep_programs()
    logging.getLogger('jax').setLevel(logging.WARNING)
    # Of a damaged checkpoint one read is told by its error; others would follow it.
    logging.getLogger('asyncio').setLevel(logging.CRITICAL)
    sys.unraisablehook = _but_of_ended_reads


def _but_of_ended_reads(lost: Any) -> None:
    """Errors that nobody can catch, but for those of reads that end after one has failed."""
    # As the checkpoint library's threads say it.
    if str(lost.exc_value) != 'Event loop is closed':
        sys.__unraisablehook__(lost)


def require_devices() -> None:
    """Stops before work starts where JAX was asked for devices that it does not find.

    Raises:
        UserError: it names JAX_PLATFORMS, which asks.
    """
    import jax

    asked = os.environ.get('JAX_PLATFORMS', '')
    try:
        found, reason = jax.devices()[0].platform, ''
    except (AssertionError, RuntimeError) as error:  # as JAX tells of them
        found, reason = 'none', str(error).partition('\n')[0]
    # Of 'cuda,cpu' JAX takes the second without a word where it has no plugin for the first.
    fell_back = found == 'cpu' and asked.partition(',')[0] not in ('', 'cpu')
    if found == 'none' or fell_back:
        raise UserError(
            'JAX_PLATFORMS',
            f'is {asked!r}, and JAX finds no such device ({reason or "the CPU alone"})',
            'Unset it, set it to cpu, or install what the device needs, such as the '
            'extra cuda',
        )


def fail(message: str) -> NoReturn:
    """Ends the command with one line and the status for bad input."""
    print(f'error: {message}', file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)


@contextlib.contextmanager
def errors_in_one_line(place: pathlib.Path | None, flag: str) -> Iterator[None]:
    """As `fail`, where input or the operating system stops what is done inside.

    Args:
        place: where the command writes its outcome; None: nowhere.
        flag: that names the place.
    """
    try:
        yield
    except UserError as error:
        fail(str(error))
    except BrokenPipeError:  # no error of the place: `start` ends the command
        raise
    except OSError as error:
        fail(refusal(error, place, flag))


def parse(argv: Sequence[str]) -> list[str]:
    """Absl's parser, but a mistake is one message that names the flag."""
    help_if_asked(argv)
    try:
        rest: list[str] = flags.FLAGS(list(argv))
        return rest
    except flags.Error as error:
        fail_with_help(argv, str(error))


def help_if_asked(argv: Sequence[str]) -> None:
    """Ends the command with its help where that is asked for: status 0, unlike absl's."""
    if not any(argument in HELP for argument in argv[1:]):
        return
    app.usage(shorthelp=True, writeto_stdout=True)
    flush()
    sys.exit(0)


def flush() -> None:
    """Writes out what was printed; whoever has read enough of it (`| head`) is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def require(argv: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
    """As `fail_with_help`, for the flags that are needed and not given.

    Args:
        argv: of the command.
        values: by the flag's name; None: not given.

    Returns:
        The values, none of which is None or ''.
    """
    for name, value in values.items():
        if value == '':  # as of --workdir=$RUN where RUN is not set
            fail_with_help(argv, f'--{name} is empty')
    missing = [f'--{name}' for name, value in values.items() if value is None]
    if missing:
        needed = 'is needed' if len(missing) == 1 else 'are needed'
        fail_with_help(argv, f'{" and ".join(missing)} {needed}')
    return list(values.values())


def is_console() -> bool:
    """Whether `dpaf-jax` started this command, not `python -m`."""
    return sys.argv[0].partition(' ')[0] == CONSOLE


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


def own_configs() -> None:
    """Imports the package's own `configs`, though a folder of that name be nearer.

    Modules of another such folder on the path are found behind it.
    """
    folder = os.path.join(HOME, 'configs')
    known = sys.modules.get('configs')
    if known and next(iter(getattr(known, '__path__', ())), None) == folder:
        return
    spec = importlib.util.spec_from_file_location(
        'configs',
        os.path.join(folder, '__init__.py'),
        submodule_search_locations=[folder],
    )
    assert spec and spec.loader
    sys.modules['configs'] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules['configs'])
