"""Of every method, in seconds: a record moves its sums no farther than is claimed."""

from unittest import mock

import jax
import jax.numpy as jnp
import pytest
import tiny

from dpaf_jax.audit import session
from dpaf_jax.audit.findings import Finding, run_checks
from dpaf_jax.audit.white_box import MechanismAudit
from dpaf_jax.methods import METHODS
from dpaf_jax.methods.embedding.dp_hp import HermiteFeatures

# Their own tests look at their sensitivity, too.
SLOW = 'dpaf', 'dpgen', 'dpdm', 'feta', 'dpba_wgan', 'g_pate', 'datalens'
EVERY = [pytest.param(m, marks=[pytest.mark.slow] * (m in SLOW)) for m in METHODS]


def sensitivities(method: str) -> list[Finding]:
    config = tiny.config(method=method)
    plan = tiny.plan(config)
    found = []
    for target in session.AUDITS[method].audit_targets(config, plan, (1,)):
        checks = MechanismAudit(target, plan.delta, 100, 11).checks()
        found += run_checks([check for check in checks if check.kind == 'sensitivity'])
    return found


@pytest.mark.parametrize('method', EVERY)
def test_a_record_moves_each_sum_by_at_most_what_is_claimed(method):
    found = sensitivities(method)
    assert found and all(finding.passed for finding in found), found


def test_rows_centred_over_the_batch_are_found():
    """By the scene of records that are alike but one: elsewhere a batch's mean is short."""
    honest = HermiteFeatures.rows

    def centred(
        self: HermiteFeatures, coins: jax.Array, images: jax.Array
    ) -> jax.Array:
        rows = honest(self, coins, images)
        return rows - jnp.mean(rows, axis=0)

    with mock.patch.object(HermiteFeatures, 'rows', centred):
        assert not all(finding.passed for finding in sensitivities('dp_hp'))
