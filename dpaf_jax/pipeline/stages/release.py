"""The release folder, from a finished training; with it the keys of the noise go."""

import logging
from typing import Any

from dpaf_jax.pipeline.stages import plan, train
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.release.bundle import Release, load_release, mended, write_release
from dpaf_jax.runtime import processes


def run(job: Job) -> Release:
    """Writes the release folder from the finished training, then deletes the keys."""
    folder = job.workdir.release
    if not processes.from_first(folder.exists):
        params = train.run(job)
        processes.from_first(lambda: _write(job, params))
    for name in processes.from_first(lambda: mended(folder)):
        logging.warning('%s was gone from the release, and is written anew', name)
    job.workdir.entropy.unlink(missing_ok=True)
    return load_release(folder)


def _write(job: Job, params: Any) -> None:
    write_release(job.workdir.release, job.config, plan.run(job), params)
