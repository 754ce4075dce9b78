"""Every step draws its records anew, and has a noise key and coins of its own."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dp_sinkhorn import DpSinkhorn
from dpaf_jax.training import input_pipeline, sampled_phase
from dpaf_jax.training.sampled_phase import SampledPhase


@pytest.mark.parametrize('unrolls', [True, False])
def test_each_step_has_a_draw_a_noise_key_and_coins_of_its_own(
    tmp_path, monkeypatch, unrolls
):
    asked, poisson_records = [], sampled_phase.poisson_records

    def draw(run, mechanism, step):
        asked.append((mechanism.name, step))
        return poisson_records(run, mechanism, step)

    monkeypatch.setattr(sampled_phase, 'poisson_records', draw)
    fields = {'dp_sinkhorn__generator_steps': 20}
    run = tiny.run(tmp_path, tiny.config(method='dp_sinkhorn', **fields))
    phase = SampledPhase(run, DpSinkhorn(run.config, run.plan), unrolls=unrolls)
    used = []

    def note(state, data, draws, noise, public):
        used.extend(zip(noise[0], public[0], strict=True))
        return state, {}

    monkeypatch.setattr(phase, '_compiled', note)
    state, step = jax.tree.map(lambda leaf: leaf[None], phase.init()), 0
    while step < phase.total_steps:
        state, step, _ = phase.window(state, step)
    (mechanism,) = run.plan.mechanisms
    assert step == mechanism.steps == 20
    assert asked == [(mechanism.name, t) for t in range(20)]
    for t, (noise, public) in enumerate(used):
        np.testing.assert_array_equal(noise, run.keys.noise(mechanism.name, t))
        np.testing.assert_array_equal(public, run.keys.public('step', t))
    assert len(used) == 20


@pytest.mark.parametrize('charges', [True, False])
def test_a_phase_makes_no_step_that_the_plan_does_not_charge(tmp_path, charges):
    run = tiny.run(tmp_path, tiny.config(method='dp_sinkhorn'))
    (mechanism,) = run.plan.mechanisms
    fewer = dataclasses.replace(mechanism, steps=mechanism.steps - 1)
    plan = dataclasses.replace(run.plan, mechanisms=(fewer,) if charges else ())
    phase = SampledPhase(run, DpSinkhorn(run.config, run.plan), unrolls=False)
    with pytest.raises(
        RuntimeError, match=f'{mechanism.steps} steps of {mechanism.name}'
    ):
        dataclasses.replace(run, plan=plan).train(phase)


def test_records_are_drawn_at_the_rate_of_the_plan_however_many_there_are(
    tmp_path, monkeypatch
):
    """A rate by the records that are not empty would tell their number, uncharged."""
    run = tiny.run(tmp_path, tiny.config(method='dp_sinkhorn'))
    data, asked = run.data, []
    fewer = {name: getattr(data, name)[:30] for name in ('images', 'labels', 'index')}
    run = dataclasses.replace(run, data=dataclasses.replace(data, **fewer))
    monkeypatch.setattr(
        input_pipeline,
        'poisson_draw',
        lambda mechanism, present, *_: asked.append((mechanism, present)),
    )
    (mechanism,) = run.plan.mechanisms
    input_pipeline.poisson_records(run, mechanism, 0)
    assert asked == [(mechanism, 30)]
