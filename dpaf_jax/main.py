"""Trains a generator under differential privacy and leaves a release.

    python -m dpaf_jax.main --config=configs/recommended.py:digits --workdir=runs/digits

Any config field can be replaced: --config.privacy.epsilon=1. `--stage=plan` prints the
mechanisms, their noise and epsilon, and trains nothing. The same command again
resumes an interrupted run, or says that it is done.

On several hosts start it once on each, with --cluster and a workdir that all of them see.
"""

import os
import pathlib
import traceback
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpaf_jax.runtime import files, memory
from dpaf_jax.runtime.command import (
    EXIT_AGAIN,
    EXIT_BAD_INPUT,
    EXIT_PIPE,
    flush,
    prepare_jax,
    require,
    require_devices,
    start,
)
from dpaf_jax.runtime.config_flag import CONFIG, parse, stated
from dpaf_jax.runtime.errors import InUseError, UserError

_WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Folder of the run; made if absent.', allow_override=True
)
_STAGE = flags.DEFINE_string(
    'stage',
    'all',
    'all, or one of prepare, plan, train, release, samples, evaluate, report.',
)
_CLUSTER = flags.DEFINE_string(
    'cluster',
    '',
    'Several processes as one run: auto (SLURM, TPU slice, Kubernetes, MPI), or '
    'ADDRESS:PORT,INDEX,COUNT with the address of process 0 and a free port there.',
)

EXIT_BUG = 1


def main(argv: Sequence[str]) -> None:
    """Runs the stages that the flags ask for."""
    given = {'config': CONFIG.value, 'workdir': _WORKDIR.value}
    _, workdir = require(argv, given)
    if _STAGE.value == 'plan':
        # Planning is arithmetic; it must not wait for an accelerator.
        os.environ['JAX_PLATFORMS'] = 'cpu'
    prepare_jax()
    # Imported late, so that --help and a mistyped flag answer at once.
    from dpaf_jax.runtime import processes
    from dpaf_jax.training.signals import Interrupted, StopRequest
    from dpaf_jax.training.workdir import Workdir

    stop = StopRequest()
    stop.listen()
    try:
        if _CLUSTER.value and _STAGE.value == 'plan':
            processes.parse(_CLUSTER.value)  # one process plans
        elif (
            Workdir(workdir).release.exists()
            and (index := processes.index_of(_CLUSTER.value)) is not None
        ):
            if index:
                return  # the rest is the first one's work; who has ended does not come back
        else:
            with stop.deferred():  # a signal would wait as long as they do
                processes.join(_CLUSTER.value)
        if _STAGE.value != 'plan':
            require_devices()
        _run_stages(workdir, stop)
        processes.leave()
    except InUseError as error:
        processes.end(EXIT_AGAIN, f'error: {error}')
    except (UserError, FloatingPointError) as error:
        processes.end(EXIT_BAD_INPUT, f'error: {error}')
    except BrokenPipeError:  # whoever reads the output has seen enough
        flush()
        processes.end(
            EXIT_PIPE, 'the output was cut off: run the same command to go on'
        )
    except OSError as error:
        # What was there before is whole: files appear under their names when complete.
        text = files.refusal(error, pathlib.Path(workdir), '--workdir')
        processes.end(EXIT_BAD_INPUT, f'error: {text}')
    except Interrupted as notice:
        processes.end(notice.status, str(notice))
    except Exception as error:
        if files.is_full_disk(error):  # as a library has put it
            text = files.full_disk(pathlib.Path(workdir))
            processes.end(EXIT_BAD_INPUT, f'error: {text}')
        if memory.is_out_of_memory(error):
            processes.end(EXIT_BAD_INPUT, f'error: {memory.out_of_memory(error)}')
        processes.end_where_another_is_gone(error, EXIT_AGAIN)
        if processes.count() == 1:
            raise
        traceback.print_exc()
        processes.end(EXIT_BUG, f'error: {type(error).__name__}: {error}')


def _run_stages(workdir: str, stop: Any) -> None:
    from dpaf_jax.pipeline.outlook import outlook
    from dpaf_jax.pipeline.summary import summary
    from dpaf_jax.pipeline.synthesize import Pipeline, check_stage
    from dpaf_jax.privacy.plan import describe
    from dpaf_jax.runtime import processes

    whole = _STAGE.value == 'all'
    if not whole:  # before all pictures are looked at
        check_stage(_STAGE.value)
    pipeline = Pipeline(CONFIG.value, workdir, stop=stop, stated=stated())
    if whole and processes.from_first(pipeline.is_done):
        if processes.is_first():
            print(f'{workdir}: done already; see {pipeline.workdir.release}')
        return
    for stage in pipeline.stages() if whole else (_STAGE.value,):
        result = pipeline.run(stage)
        if stage == 'plan' and processes.is_first():
            print(describe(result))
            print(outlook(pipeline.config, result).text)
    if _STAGE.value in ('all', 'report') and processes.is_first():
        print(summary(pipeline.workdir))


def run() -> None:
    """Entry point."""
    flags.declare_key_flag('config')  # so that --help lists it
    start(main, parse)


if __name__ == '__main__':
    run()
