"""Trains a generator under differential privacy and leaves a release.

    python -m dpaf_jax.main --config=configs/digits.py --workdir=runs/digits

Any config field can be replaced: --config.privacy.epsilon=1. `--stage=plan` prints the
mechanisms, their noise and epsilon without looking at an image. The same command again
resumes an interrupted run, or says that it is done.
"""

import os
import sys
from collections.abc import Sequence

from absl import app, flags

from dpaf_jax.command import fail, prepare_jax
from dpaf_jax.config_flag import CONFIG, parse
from dpaf_jax.errors import UserError

_WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Folder of the run; made if absent.', allow_override=True
)
_STAGE = flags.DEFINE_string(
    'stage',
    'all',
    'all, or one of prepare, plan, train, release, samples, evaluate, report.',
)

EXIT_INTERRUPTED = 143  # as a shell reports SIGTERM; launch scripts start again


def main(argv: Sequence[str]) -> None:
    """Runs the stages that the flags ask for."""
    if len(argv) > 1:
        fail(f'unknown argument {argv[1]!r}: flags start with --')
    workdir = _WORKDIR.value
    if CONFIG.value is None or workdir is None:
        fail('--config and --workdir are needed; see python -m dpaf_jax.main --help')
    if _STAGE.value == 'plan':
        # Planning is arithmetic; it must not wait for an accelerator.
        os.environ['JAX_PLATFORMS'] = 'cpu'
    prepare_jax()
    # Imported late, so that --help and a mistyped flag answer at once.
    from dpaf_jax.pipeline import Pipeline
    from dpaf_jax.privacy.plan import describe
    from dpaf_jax.run import Interrupted, StopRequest

    stop = StopRequest()
    stop.listen()
    try:
        pipeline = Pipeline(CONFIG.value, workdir, stop=stop)
        if _STAGE.value == 'all' and pipeline.is_done():
            print(f'{workdir}: done already; see {pipeline.workdir.release}')
            return
        whole = _STAGE.value == 'all'
        for stage in pipeline.stages() if whole else (_STAGE.value,):
            result = pipeline.run(stage)
            if stage == 'plan':
                print(describe(result))
    except (UserError, FloatingPointError) as error:
        fail(str(error))
    except OSError as error:
        # What was there before is whole: files appear under their names when complete.
        fail(f'{error.filename or workdir}: {error.strerror or error}')
    except Interrupted as notice:
        print(notice, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def run() -> None:
    """Entry point."""
    app.run(main, flags_parser=parse)


if __name__ == '__main__':
    run()
