"""Trains a generator under differential privacy and leaves a release.

    python -m dpaf_jax.main --config=configs/digits.py --workdir=runs/digits

Any config field can be replaced: --config.privacy.epsilon=1. `--stage=plan` prints the
mechanisms, their noise and epsilon without looking at an image. The same command again
resumes an interrupted run, or says that it is done.
"""

import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from absl import app, flags, logging
from ml_collections import config_flags

from dpaf_jax.errors import UserError

_CONFIG = config_flags.DEFINE_config_file(
    'config', None, 'A file such as configs/mnist.py (or configs/celeba64.py:hair).'
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run; made if absent.')
_STAGE = flags.DEFINE_string(
    'stage',
    'all',
    'all, or one of prepare, plan, train, release, samples, evaluate, report.',
)

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 143  # as a shell reports SIGTERM; launch scripts start again


def main(argv: Sequence[str]) -> None:
    """Runs the stages that the flags ask for."""
    if len(argv) > 1:
        _fail(f'unknown argument {argv[1]!r}: flags start with --')
    workdir = _WORKDIR.value
    if _CONFIG.value is None or workdir is None:
        _fail('--config and --workdir are needed; see python -m dpaf_jax.main --help')
    if _STAGE.value == 'plan':
        # Planning is arithmetic; it must not wait for an accelerator.
        os.environ['JAX_PLATFORMS'] = 'cpu'
    _keep_compiled_programs()
    # Imported late, so that --help and a mistyped flag answer at once.
    from dpaf_jax.pipeline import Pipeline
    from dpaf_jax.privacy.plan import describe
    from dpaf_jax.run import Interrupted, StopRequest

    stop = StopRequest()
    stop.listen()
    try:
        pipeline = Pipeline(_CONFIG.value, workdir, stop=stop)
        if _STAGE.value == 'all' and pipeline.is_done():
            print(f'{workdir}: done already; see {pipeline.workdir.release}')
            return
        whole = _STAGE.value == 'all'
        for stage in pipeline.stages() if whole else (_STAGE.value,):
            result = pipeline.run(stage)
            if stage == 'plan':
                print(describe(result))
    except (UserError, FloatingPointError) as error:
        _fail(str(error))
    except OSError as error:
        # What was there before is whole: files appear under their names when complete.
        _fail(f'{error.filename or workdir}: {error.strerror or error}')
    except Interrupted as notice:
        print(notice, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _keep_compiled_programs() -> None:
    """A second run starts sooner: programs hold shapes and code, never data."""
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    os.environ.setdefault(
        'JAX_COMPILATION_CACHE_DIR', os.path.join(cache, 'dpaf_jax', 'xla')
    )
    os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.2')


def _fail(message: str) -> NoReturn:
    print(f'error: {message}', file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)


def _parse(argv: Sequence[str]) -> list[str]:
    """Absl's parser, but every mistake is one message that names the flag."""
    _make_importable(argv)
    try:
        rest: list[str] = flags.FLAGS(list(argv))
        if _CONFIG.value is not None:
            _ = _CONFIG.value.method  # a file that cannot be read is noticed only here
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
    logging.debug('%s', traceback.format_exc())
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    unknown = re.match(r"\W*'(\w+)\W", str(error))
    if unknown and isinstance(error, LookupError | AttributeError):
        for flag in (argument.partition('=')[0] for argument in argv):
            if flag.startswith('--config.') and unknown[1] in flag.split('.'):
                _fail(f'{flag}: no such field. configs/default.py lists them all.')
    if isinstance(error, OSError):
        lines = ['--config:', lines[-1].rpartition('failure to load: ')[-1]]
    elif not isinstance(error, flags.Error):
        lines[:0] = [f'--config: {type(error).__name__}:']
    elif any(line.startswith('Traceback') for line in lines):
        # A config's own complaint, which absl wraps into a traceback: its last line.
        lines = [lines[0].replace('Error whilst parsing config file:', ''), lines[-1]]
    text = ' '.join(' '.join(lines).split()).rstrip('.')
    _fail(f'{text}. See python -m dpaf_jax.main --help')


def run() -> None:
    """Entry point."""
    app.run(main, flags_parser=_parse)


if __name__ == '__main__':
    run()
