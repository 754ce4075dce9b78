"""How many generator steps follow a table."""

import tiny

from dpaf_jax import methods
from dpaf_jax.methods.dpaf.phase2.schedule import Schedule
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout

LABELLED = {
    **tiny.ONE_SHOT,
    'dpaf__classifier__private': 'labeller',
    'dpaf__taps': 'wavelet',
}


def test_the_longer_the_noise_the_fewer_steps_follow_a_table():
    def schedule(number, steps=0, **fields):
        asked = {
            **LABELLED,
            'dpaf__generator_steps': steps,
            'privacy__delta': 1e-7,
            'privacy__epsilon': 0.3,
        }
        config = tiny.config(**{**asked, **fields})
        taps = make_tap_layout(config)
        return Schedule(config, methods.plan(config, number), taps)

    numbers = 100, 400, 2000, 10**5
    made = [schedule(n) for n in numbers]
    lengths = [m.noise_length for m in made]
    steps = [m.generator_steps for m in made]
    assert lengths == sorted(lengths, reverse=True)
    assert steps == sorted(steps) and steps[0] < steps[-1] == 2000
    for length, number in zip(lengths, steps, strict=True):
        assert number == 10 * round(min(max(24 / length, 10), 200))
    along = schedule(2000, dpaf__axes='all', privacy__epsilon=2.0)
    assert along.generator_steps == 10 * round(5 / along.noise_length) > 100
    assert schedule(100, steps=7).generator_steps == 7
    assert schedule(100, privacy__epsilon=float('inf')).generator_steps == 2000
