"""Limits of a rate: those of Clopper and Pearson, exact at either end."""

import numpy as np
import pytest
from scipy import stats

from dpaf_jax.runtime.rates import clopper_pearson


@pytest.mark.parametrize(
    'number', [1, 7, 100, pytest.param(400, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize('alpha', [1e-5, 0.05, 0.3])
def test_limits_are_those_of_scipy_for_every_count(number, alpha):
    counts = np.arange(number + 1)
    low, high = clopper_pearson(counts, number, alpha)
    expected = [
        stats.binomtest(int(k), number).proportion_ci(1 - alpha) for k in counts
    ]
    np.testing.assert_allclose(low, [ci.low for ci in expected], atol=1e-9)
    np.testing.assert_allclose(high, [ci.high for ci in expected], atol=1e-9)
    assert low[0] == 0 and high[-1] == 1
