"""Images of a run: decoded into its folder once, opened from there to train with."""

import pathlib

import numpy as np

from dpaf_jax.config import DataConfig
from dpaf_jax.data import (
    Dataset,
    Manifest,
    check_arrays,
    load,
    prepare,
)
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.runtime import processes
from dpaf_jax.runtime.errors import UserError

SLOW_TO_READ = 10**9  # bytes, a second or more


def run(job: Job) -> Manifest:
    """Decodes the images, unless they are there."""
    if public := job.config.public_data:
        _prepare_public(job, public)
    return prepare(job.config.data, job.data_directory)


def _prepare_public(job: Job, public: DataConfig) -> None:
    try:
        prepare(public, job.workdir.public, labelled=public.num_classes > 1)
    except UserError as error:
        field = f'config.{job.config.method}.warm_start'
        own = {
            'config.data.source': field,
            'config.data.num_classes': f'{field}_classes',
        }
        where = own.get(error.where, error.where)
        raise UserError(where, error.problem, error.remedy) from error


def private_data(job: Job, plan: PrivacyPlan) -> Dataset:
    """The private images.

    Raises:
        UserError: they are not what was prepared, or not as many as planned for.
    """
    data = _opened(job, job.config.data, job.data_directory)
    if data.manifest.num_examples != plan.num_examples:
        raise UserError(
            str(job.workdir.plan),
            f'was made for {plan.num_examples} images, but the data have '
            f'{data.manifest.num_examples}',
            'Give a new workdir and the right config.data.num_examples',
        )
    return data


def public_data(job: Job, private: Dataset) -> Dataset | None:
    """The public images that training starts from, where the config names some.

    Raises:
        UserError: they are not what was prepared, or they are the private ones.
    """
    if job.config.public_data is None:
        return None
    public = _opened(job, job.config.public_data, job.workdir.public)
    if np.array_equal(public.images, private.images):
        raise UserError(
            f'config.{job.config.method}.warm_start',
            'names the private images, at another place',
            'Name a source of public images, or none',
        )
    return public


def _opened(job: Job, config: DataConfig, directory: pathlib.Path) -> Dataset:
    """The data that keys are taken for, each array read once and compared."""
    files = tuple(
        (path, found.st_ino, found.st_size, found.st_mtime_ns)
        for path in sorted(directory.glob('*'))
        for found in [path.stat()]
    )
    if files not in job.checked:
        data = load(config, directory)
        # Of N images, which is public; how many there are is not.
        size = data.manifest.num_examples * data.images[:1].nbytes
        if size > SLOW_TO_READ and processes.is_first():
            print(f'checking up to {size / 1e9:.1f} GB of prepared data', flush=True)
        check_arrays(data, directory)
        job.checked[files] = data
    return job.checked[files]
