"""All audits of one config: which checks there are, and their findings."""

import dataclasses
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from dpaf_jax import methods
from dpaf_jax.audit import black_box, class_histogram, randomness
from dpaf_jax.audit.findings import (
    CONFIDENCE,
    KINDS,
    Check,
    Finding,
    alpha_of,
    run_checks,
)
from dpaf_jax.audit.methods import (
    dp_gan,
    dp_sinkhorn,
    dpaf,
    dpba_wgan,
    dpgen,
    embedding,
    feta,
    g_pate,
    gs_wgan,
    ndpdc,
    p3gm,
)
from dpaf_jax.audit.target import MethodAudit
from dpaf_jax.audit.white_box import MechanismAudit
from dpaf_jax.config import Config, from_config_dict
from dpaf_jax.privacy.class_histogram import CLASSES
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import CERTIFIED, PrivacyPlan
from dpaf_jax.runtime.errors import UserError

AUDITS: dict[str, MethodAudit] = {
    'dpaf': dpaf,
    'dpgen': dpgen,
    'dpdm': dpgen,
    'feta': feta,
    'dp_merf': embedding,
    'dp_kernel': embedding,
    'dp_hp': embedding,
    'pearl': embedding,
    'ndpdc': ndpdc,
    'dp_sinkhorn': dp_sinkhorn,
    'p3gm': p3gm,
    'dp_gan': dp_gan,
    'dp_cgan': dp_gan,
    'datalens': g_pate,
    'pate_gan': g_pate,
    'g_pate': g_pate,
    'dpba_wgan': dpba_wgan,
    'gs_wgan': gs_wgan,
}


@dataclasses.dataclass(frozen=True)
class Audit:
    """What an audit found; nothing in it is private: it saw made-up images only.

    Attributes:
        plan: that was audited.
        findings: of all checks.
        settings: how it was done.
    """

    plan: PrivacyPlan
    findings: list[Finding]
    settings: dict[str, Any]

    @property
    def violations(self) -> list[Finding]:
        """Findings that refute what was claimed."""
        return [finding for finding in self.findings if not finding.passed]

    def to_json(self) -> dict[str, Any]:
        """The content of audit.json."""
        return {
            'violation_found': bool(self.violations),
            'private': False,
            'note': 'made from canaries alone; no private image was read',
            'simultaneous_confidence': CONFIDENCE,
            'settings': self.settings,
            'kinds': KINDS,
            'findings': [finding.to_json() for finding in self.findings],
            'plan': self.plan.to_json(),
        }


def audit(
    config: Config | ConfigDict,
    *,
    plan: PrivacyPlan | None = None,
    devices: Sequence[int] = (1,),
    repetitions: int = 2000,
    runs: int = 0,
    seed: int | None = None,
    on_check: Callable[[Check], None] = lambda check: None,
) -> Audit:
    """Audits the mechanisms of a config and, if asked, its released generator.

    Args:
        config: a certified one, with `data.num_examples`.
        plan: of the config; made here by default.
        devices: numbers of devices on which mechanisms are checked.
        repetitions: of each mechanism's attack, with and without the canary each.
        runs: whole trainings at tiny size, with and without the canary each; 0: none.
        seed: of the audit's coins; by default from the operating system.
        on_check: called in front of each check.

    Raises:
        UserError: there is nothing certified to audit, or too few devices.
    """
    if isinstance(config, ConfigDict):
        config = from_config_dict(config)
    method, plan = _method(config), plan or _plan(config)
    _check(plan, devices)
    seed = secrets.randbits(63) if seed is None else seed
    keys = RunKeys(seed.to_bytes(32), 'audit')
    own = plan.without(CLASSES)  # no method's
    targets = method.audit_targets(config, own, devices)
    trace = method.trace(config, own, keys)
    if CLASSES in plan:
        targets.append(class_histogram.audit_target(config, plan))
        trace = class_histogram.noted(trace, keys)
    audits = {
        t.mechanism.name: MechanismAudit(t, plan.delta, repetitions, seed)
        for t in targets
    }
    checks = [check for each in audits.values() for check in each.checks()]
    # A class histogram's noise is K numbers: too few to correlate with anything.
    noise = {
        name: each.noise_of
        for name, each in audits.items()
        if plan[name].law == 'gaussian'
    }
    checks += randomness.checks(trace, noise)
    other = RunKeys((seed + 1).to_bytes(32), 'audit')
    turns = config.data.num_classes
    checks += randomness.plan_checks(trace, own, (keys, other), turns)
    if runs:
        checks.append(black_box.check(config, method, runs, seed))
    settings = {
        'devices': list(devices),
        'platform': jax.default_backend(),
        'repetitions': repetitions,
        'runs': runs,
        'checks': len(checks),
        'alpha_of_each': alpha_of(checks),
    }
    return Audit(plan, run_checks(checks, on_check), settings)


def _method(config: Config) -> MethodAudit:
    methods.get(config.method)
    if config.method not in AUDITS:
        raise UserError(
            'config.method', f'is {config.method!r}, which has no audit', 'Add one'
        )
    return AUDITS[config.method]


def _plan(config: Config) -> PrivacyPlan:
    if not config.data.num_examples:
        raise UserError(
            'config.data.num_examples',
            'is 0',
            'Give the public number of training images: an audit reads no data',
        )
    return methods.plan(config, config.data.num_examples)


def _check(plan: PrivacyPlan, devices: Sequence[int]) -> None:
    if plan.guarantee != CERTIFIED or plan.epsilon is None:
        raise UserError(
            'config.privacy',
            f'certifies nothing to audit (guarantee: {plan.guarantee})',
            "Set guarantee to 'certified' and epsilon to a number",
        )
    there = len(jax.local_devices())
    if not devices or min(devices) < 1 or max(devices) > there:
        raise UserError(
            '--devices',
            f'is {",".join(map(str, devices))}, but there are {there}',
            f'Give numbers from 1 to {there}, separated by commas',
        )
