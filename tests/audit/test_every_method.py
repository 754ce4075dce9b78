"""Of every method, in seconds: a record moves its sums no farther than is claimed."""

import pytest
import tiny

from dpaf_jax.audit import session
from dpaf_jax.audit.findings import run_checks
from dpaf_jax.audit.white_box import MechanismAudit
from dpaf_jax.methods import METHODS

SLOW = 'dpaf', 'dpgen', 'dpdm', 'feta', 'dpba_wgan'  # sensitivity: their own tests, too
EVERY = [pytest.param(m, marks=[pytest.mark.slow] * (m in SLOW)) for m in METHODS]


@pytest.mark.parametrize('method', EVERY)
def test_a_record_moves_each_sum_by_at_most_what_is_claimed(method):
    config = tiny.config(method=method)
    plan = tiny.plan(config)
    for target in session.AUDITS[method].audit_targets(config, plan, (1,)):
        checks = MechanismAudit(target, plan.delta, 100, 11).checks()
        found = run_checks([check for check in checks if check.kind == 'sensitivity'])
        assert found and all(finding.passed for finding in found), found
