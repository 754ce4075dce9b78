"""Every release of every method has a noise key of its own, as its phases hand them out."""

import itertools

import numpy as np
import pytest
import tiny

from dpaf_jax.audit import randomness
from dpaf_jax.audit.session import AUDITS


@pytest.mark.parametrize('method', AUDITS)
def test_no_noise_key_comes_twice(method):
    """A key that comes twice is one noise on two sums: their difference has none."""
    config = tiny.config(method=method)
    plan = tiny.plan(config)
    noted = AUDITS[method].trace(config, plan, tiny.keys()).keys
    names = [m.name for m in plan.mechanisms]
    assert set(names) <= set(noted)
    keys = {name: {key.tobytes() for key in np.asarray(noted[name])} for name in noted}
    for name in names:
        assert 0 < len(keys[name]) == len(noted[name])
    for one, other in itertools.combinations(keys, 2):
        assert not keys[one] & keys[other]


@pytest.mark.parametrize('method', AUDITS)
def test_nobody_is_in_more_draws_than_are_charged(method):
    """What is charged as a sample, and sums all records, has an epsilon far too low."""
    config = tiny.config(method=method)
    plan = tiny.plan(config)
    noted = AUDITS[method].trace(config, plan, tiny.keys()).draws
    for name, draws in noted.items():
        case = randomness._rate(draws, 1e-6)
        assert draws.sampling_prob == plan[name].sampling_prob
        assert case.passed, (name, case.detail)


@pytest.mark.parametrize('method', AUDITS)
def test_several_steps_are_looked_at_where_there_are_several(method):
    config = tiny.config(method=method)
    plan = tiny.plan(config)
    noted = AUDITS[method].trace(config, plan, tiny.keys()).keys
    for m in plan.mechanisms:
        if m.steps > 1 and m.law == 'gaussian' and m.sampling_prob < 1:
            assert len(noted[m.name]) > 1, m.name
