"""FETA for the audit: the first release as DPAF's audit sees it, `score` as DPGEN's does."""

import dataclasses
from collections.abc import Sequence

from dpaf_jax.audit.methods import dpaf, dpgen
from dpaf_jax.audit.target import AuditTarget, Trace
from dpaf_jax.config import Config
from dpaf_jax.methods.feta import first_release
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import PrivacyPlan


def audit_targets(
    config: Config, plan: PrivacyPlan, devices: Sequence[int]
) -> list[AuditTarget]:
    """A target for each mechanism of the plan; `devices`: numbers of devices."""
    first, last = _parts(plan)
    targets = dpaf.audit_targets(first_release(config), first, devices)
    return [*targets, *dpgen.audit_targets(config, last, devices)]


def trace(config: Config, plan: PrivacyPlan, keys: RunKeys) -> Trace:
    """The coins of both parts."""
    first, last = _parts(plan)
    one = dpaf.trace(first_release(config), first, keys)
    other = dpgen.trace(config, last, keys)
    return dataclasses.replace(
        one,
        draws=one.draws | other.draws,
        keys=one.keys | other.keys,
        noise={**one.noise, **other.noise},
        charged=one.charged | other.charged,
    )


def shrink(config: Config, num_examples: int) -> Config:
    """The same kind of run on 8 x 8 images, with thin networks and few steps."""
    return dpgen.shrink(dpaf.shrink(config, num_examples), num_examples)


def _parts(plan: PrivacyPlan) -> tuple[PrivacyPlan, PrivacyPlan]:
    """The plan of the first release's mechanisms, and that of `score` alone."""
    last = dataclasses.replace(plan, mechanisms=(plan['score'],))
    return plan.without('score'), last
