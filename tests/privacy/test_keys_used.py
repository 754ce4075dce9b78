"""A whole training makes the noise of each key of its plan, and of each once.

The audit's phases note the keys that they hand to a step. Here is what a step does with them.
"""

import collections

import jax
import numpy as np
import pytest
import tiny

from dpaf_jax import methods
from dpaf_jax.privacy import noise

# Their plan's steps are turns of one class, votes, or scales drawn in public: no list of keys.
OTHERWISE = (
    'dpaf', 'feta', 'datalens', 'pate_gan', 'g_pate', 'dpba_wgan', 'gs_wgan',
)  # fmt: skip
SLOW = (*OTHERWISE, 'dpgen', 'dpdm', 'dp_gan', 'dp_cgan', 'p3gm')
EVERY = [
    pytest.param(m, marks=[pytest.mark.slow] * (m in SLOW)) for m in methods.METHODS
]


@pytest.mark.parametrize('method', EVERY)
def test_every_key_of_the_plan_makes_noise_once(method, tmp_path, monkeypatch):
    used, make_noise = collections.Counter(), noise._noise

    def note(key):
        used[np.asarray(key).tobytes()] += 1

    def noted(sums, key_data, *more):
        jax.debug.callback(note, key_data)
        return make_noise(sums, key_data, *more)

    monkeypatch.setattr(noise, '_noise', noted)
    run = tiny.run(tmp_path, tiny.config(method=method))
    with tiny.quick_compilation():
        methods.train(run)
    jax.effects_barrier()
    assert used and max(used.values()) == 1
    if method not in OTHERWISE:
        steps = [(m.name, step) for m in run.plan for step in range(m.steps)]
        assert set(used) == {run.keys.noise(*each).tobytes() for each in steps}
