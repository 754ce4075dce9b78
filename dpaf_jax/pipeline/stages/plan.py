"""The privacy plan of a run, made once: from public numbers, without image or accelerator."""

import dataclasses
import hashlib
from typing import Any

from dpaf_jax import methods
from dpaf_jax.data import num_listed, read_manifest
from dpaf_jax.pipeline.stages.job import Job
from dpaf_jax.privacy.plan import FIXED_ENTROPY, PrivacyPlan
from dpaf_jax.release.bundle import load_release
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.files import json_text, read_json, write_json
from dpaf_jax.training import fingerprint


def run(job: Job) -> PrivacyPlan:
    """The release's, or what was planned here for this config, or a new one."""
    workdir = job.workdir
    if workdir.release.exists():
        return PrivacyPlan.from_json(load_release(workdir.release).privacy)
    fields = fingerprint.trained_with(job.config)
    fixed = job.entropy is not None
    plan = _made_before(job, fields)
    if plan and fixed == (plan.guarantee == FIXED_ENTROPY):
        return plan
    plan = methods.plan(job.config, _num_examples(job))
    if fixed:
        plan = dataclasses.replace(plan, guarantee=FIXED_ENTROPY)
    workdir.plan.unlink(missing_ok=True)
    checksum = _checksum(json_text(plan.to_json()).encode())
    by = fingerprint.software()
    write_json(workdir.config, {'config': fields, 'software': by, 'plan': checksum})
    write_json(workdir.plan, plan.to_json())
    return plan


def _made_before(job: Job, fields: dict[str, Any]) -> PrivacyPlan | None:
    """The plan that was made here for this config, if there is one.

    Other code may clip to other bounds than this plan's noise is for: then there is none.
    Once keys are taken it is kept, and whoever trains with other code is refused.
    """
    made = read_json(job.workdir.config) or {}
    if not job.workdir.plan.exists() or made.get('config') != fields:
        return None
    if _checksum(job.workdir.plan.read_bytes()) != made['plan']:
        raise UserError(
            str(job.workdir.plan),
            'is not as it was written',
            'Delete it and run the plan stage: it makes the same plan again',
        )
    plan = PrivacyPlan.from_json(read_json(job.workdir.plan))
    if job.workdir.fingerprint.exists():
        return plan
    is_ours = made.get('software') == fingerprint.software()
    # Records may have come since they were counted, before any was decoded.
    return plan if is_ours and plan.num_examples == _num_examples(job) else None


def _num_examples(job: Job) -> int:
    if job.config.data.num_examples:
        return job.config.data.num_examples
    manifest = read_manifest(job.data_directory)
    return manifest.num_examples if manifest else num_listed(job.config.data)


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
