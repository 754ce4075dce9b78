"""The synthetic data set, drawn from the release alone."""

import math
import pathlib

from dpaf_jax.config import DataConfig
from dpaf_jax.pipeline.stages import plan
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.release.bundle import load_release
from dpaf_jax.release.export import read_npz, write_csv, write_npz
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import require_space, size_text
from dpaf_jax.runtime.memory import machine_memory


def run(job: Job) -> pathlib.Path:
    """Draws the synthetic data set, unless as many samples are there."""
    workdir, data = job.workdir, job.config.data
    job.require(workdir.release, 'release')
    number = wanted(job)
    if _number(workdir.samples) != number:
        require_room(job)
        release = load_release(workdir.release)
        with job.teller('samples').progress('samples', number) as on_progress:
            images, labels = release.sample(number, on_progress=on_progress)
        if data.columns:
            write_csv(workdir.samples_csv, data, images, labels)
        write_npz(workdir.samples, images, labels)
    return workdir.samples


def require_room(job: Job) -> None:
    """UserError where memory or disk has no room for it; asked before training, too."""
    needed = wanted(job) * _record_bytes(job.config.data)
    remedy = 'Lower config.samples.num, or free them'
    require_space(job.workdir.root, needed, remedy)
    in_memory, there = 2 * needed, machine_memory()  # in parts, and joined
    if in_memory > there:
        raise UserError(
            'config.samples.num',
            f'asks for {wanted(job)}, which take {size_text(in_memory)} of memory, and there '
            f'are {size_text(there)}',
            'Lower it, and draw several sets from the release with dpaf_jax.sample',
        )


def wanted(job: Job) -> int:
    """How many the config asks for."""
    return job.config.num_samples(plan.run(job).num_examples)


def _number(samples: pathlib.Path) -> int:
    return len(read_npz(samples)[1]) if samples.exists() else 0


def _record_bytes(data: DataConfig) -> int:
    return math.prod(data.shape) * (4 if data.columns else 1)
