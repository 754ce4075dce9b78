"""Which checks of an audit fail where a fault has been planted."""

import tiny

from dpaf_jax.audit import randomness
from dpaf_jax.audit.findings import KINDS, run_checks
from dpaf_jax.audit.methods import dpaf
from dpaf_jax.audit.white_box import MechanismAudit
from dpaf_jax.privacy.keys import RunKeys

SEED, REPETITIONS = 11, 2000


def failures(findings):
    return {finding.kind for finding in findings if not finding.passed}


MOST = frozenset(KINDS) - {'epsilon (one run)'}  # which takes long


def mechanism_failures(name, devices=(1,), kinds=MOST, **fields):
    """Which of these kinds of check fail for one mechanism."""
    config = tiny.config(**fields)
    plan = tiny.plan(config)
    one = dpaf._target(dpaf._readable(config), plan, plan[name], devices)
    checks = MechanismAudit(one, plan.delta, REPETITIONS, SEED).checks()
    return failures(run_checks([check for check in checks if check.kind in kinds]))


def coin_failures(noise=(), **fields):
    """Kinds of check that fail for a run's coins, with the noise of some purposes."""
    config = tiny.config(**fields)
    plan = tiny.plan(config)
    targets = {t.mechanism.name: t for t in dpaf.audit_targets(config, plan, (1,))}
    audits = {
        name: MechanismAudit(targets[name], plan.delta, REPETITIONS, SEED)
        for name in noise
        if name in targets
    }
    trace = dpaf.trace(config, plan, RunKeys(tiny.ENTROPY, 'audit'))
    if 'fake' not in noise:
        trace.noise.clear()
    made = {name: audit.noise_of for name, audit in audits.items()}
    return failures(run_checks(randomness.checks(trace, made)))
