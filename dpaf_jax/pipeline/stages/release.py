"""The release folder, from a finished training; with it the keys of the noise go."""

import logging
from typing import Any

from dpaf_jax.pipeline.stages import plan, train
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.release.bundle import load_release, mended, write_release
from dpaf_jax.release.drawing import Release
from dpaf_jax.runtime import processes
from dpaf_jax.runtime.errors import UserError


def run(job: Job) -> Release:
    """Writes the release folder from the finished training, then deletes the keys."""
    folder = job.workdir.release
    if not processes.from_first(folder.exists):
        params = train.run(job)
        processes.from_first(lambda: _write(job, params))
    try:
        gone = processes.from_first(lambda: mended(folder))
        release = load_release(folder)
    except UserError as error:
        raise UserError(
            str(folder),
            f'is not whole any more ({error.where}: {error.problem})',
            'Restore it from a copy: a release is made once, and its keys go with it',
        ) from error
    for name in gone:
        logging.warning('%s was gone from the release, and is written anew', name)
    job.workdir.entropy.unlink(missing_ok=True)
    return release


def _write(job: Job, params: Any) -> None:
    write_release(job.workdir.release, job.config, plan.run(job), params)
