"""Contracts of DPAF's draws."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny

from dpaf_jax import methods
from dpaf_jax.methods.dpaf.draws import draw_records


@pytest.mark.parametrize(
    ('batch_size', 'number'), [(24, 5000), (24, 10_000), (64, 1469)]
)
def test_a_batch_as_published_has_the_size_that_was_asked_for(batch_size, number):
    """24 / 10 000 * 10 000 is 23.999... in floats."""
    config = tiny.config(privacy__guarantee='as_published', dpaf__batch_size=batch_size)
    plan = methods.plan(config, number)
    data = SimpleNamespace(labels=np.zeros(number))
    run = SimpleNamespace(config=config, data=data, keys=tiny.keys())
    draw = draw_records(run, plan['dpagg'], 0)
    assert draw.indices.shape == (batch_size, 1)
