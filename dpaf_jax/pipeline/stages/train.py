"""Training: the plan's noise, the data, the keys and the devices come together here."""

import logging
from typing import Any

from absl import logging as absl_logging

from dpaf_jax import methods
from dpaf_jax.pipeline.stages import plan, prepare, samples
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.release.bundle import load_release
from dpaf_jax.runtime import compilation_cache, parallel, processes
from dpaf_jax.training import fingerprint, resume
from dpaf_jax.training.run import Run


def run(job: Job) -> Any:
    """Trains, or finds it done; returns the generator's parameters."""
    planned = processes.from_first(lambda: _planned(job))
    if planned is None:
        logging.info('%s: released already, nothing to train', job.workdir.root)
        return load_release(job.workdir.release).params
    privacy = PrivacyPlan.from_json(planned)
    data = prepare.private_data(job, privacy)
    devices = parallel.pick_devices(job.config.run.devices)
    public = prepare.public_data(job, data)

    def components(entropy: bytes) -> dict[str, Any]:
        also = public.manifest if public else None
        return fingerprint.components(
            job.config, privacy, data.manifest, devices, entropy, also
        )

    absl_logging.log_first_n(absl_logging.INFO, '%s', 1, compilation_cache.described())
    keys, inherited = resume.take_keys(job.workdir, job.entropy, components)
    return methods.train(
        Run(
            workdir=job.workdir.root,
            # Whether N was stated or found must not change what is trained.
            config=job.config.with_num_examples(privacy.num_examples),
            plan=privacy,
            data=data.placed(keys.lasting('places')),
            keys=keys,
            devices=devices,
            stop=job.stop,
            inherited=inherited,
            public=public,
        )
    )


def _planned(job: Job) -> dict[str, Any] | None:
    """The plan of a training that is still to be done; every process has it from here."""
    job.require(job.workdir.plan, 'plan')
    if job.workdir.release.exists():
        return None
    made = plan.run(job)
    samples.require_room(job)
    job.require(job.data_directory / 'manifest.json', 'prepare')
    return made.to_json()
