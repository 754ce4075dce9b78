"""Trains a generator under differential privacy and leaves a release.

    python -m dpaf_jax.main --config=configs/digits.py --workdir=runs/digits

Any config field can be replaced: --config.privacy.epsilon=1. `--stage=plan` prints the
mechanisms, their noise and epsilon without looking at an image. The same command again
resumes an interrupted run, or says that it is done.
"""

import os
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
    from dpaf_jax.pipeline import STAGES, Pipeline
    from dpaf_jax.privacy.plan import describe
    from dpaf_jax.run import Interrupted, StopRequest

    stop = StopRequest()
    stop.listen()
    try:
        pipeline = Pipeline(_CONFIG.value, workdir, stop=stop)
        if _STAGE.value == 'all' and pipeline.is_done():
            print(f'{workdir}: done already; see {pipeline.workdir.release}')
            return
        for stage in STAGES if _STAGE.value == 'all' else (_STAGE.value,):
            result = pipeline.run(stage)
            if stage == 'plan':
                print(describe(result))
    except UserError as error:
        _fail(str(error))
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
    """Absl's parser, with config mistakes as one line instead of a traceback."""
    for argument in argv:
        if argument.startswith('--config='):
            # A config imports its siblings as `configs.<name>`, from wherever it is run.
            path = argument.removeprefix('--config=').partition(':')[0]
            sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(path))))
    try:
        return app.parse_flags_with_usage(list(argv))
    except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        logging.debug('%s', traceback.format_exc())
        _fail(f'--config: {str(error).strip() or type(error).__name__}')


def run() -> None:
    """Entry point."""
    app.run(main, flags_parser=_parse)


if __name__ == '__main__':
    run()
