"""In the program that really runs, each step has the keys and the draw of its own."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from g_pate_cases import gan_of

from dpaf_jax.methods.adversarial.phase import AdversarialPhase
from dpaf_jax.methods.dp_gan.gan import DpGan
from dpaf_jax.methods.dp_sinkhorn import DpSinkhorn
from dpaf_jax.methods.g_pate.phase import GPatePhase
from dpaf_jax.privacy.chacha import KEY_WORDS
from dpaf_jax.runtime import parallel
from dpaf_jax.training.input_pipeline import sums_of_all
from dpaf_jax.training.run import Run
from dpaf_jax.training.sampled_phase import SampledPhase

MOST, PUBLIC_WORDS = 20, 4  # steps that a state has room for; of a key of public coins


def nothing():
    """Before the first step: how many were made, and what each was given."""
    return {
        'steps': jnp.int32(0),
        'noise': jnp.zeros((MOST, KEY_WORDS), jnp.uint32),
        'public': jnp.zeros((MOST, PUBLIC_WORDS), jnp.uint32),
        'drawn': jnp.zeros(MOST, jnp.int32),
    }


def noted(state, batch, noise_key, key, *_):
    """A step that writes down what it gets."""
    here = state['steps']
    drawn = jnp.sum(jnp.where(batch.is_padding_example, 0, batch.index + 1))
    return {
        'steps': here + 1,
        'noise': state['noise'].at[here].set(noise_key),
        'public': state['public'].at[here].set(key),
        'drawn': state['drawn'].at[here].set(drawn),
    }, {}


def sampled(folder):
    config = tiny.config(method='dp_sinkhorn', dp_sinkhorn__generator_steps=10)
    run = tiny.run(folder, config)
    method = DpSinkhorn(config, run.plan)
    phase = SampledPhase(run, method, unrolls=run.unrolls)
    phase._method = SimpleNamespace(step=noted)
    return run, phase, method.mechanism.name


def adversarial(folder):
    run = tiny.run(folder, tiny.config(method='dp_gan'))
    method = DpGan(run.config, run.plan, 1)
    phase = AdversarialPhase(run, method)
    phase._method = SimpleNamespace(
        discriminator_step=noted,
        eligible=method.eligible,
        draw=method.draw,
        mechanism_at=method.mechanism_at,
    )
    still = parallel.pmapped(lambda state, key: (state, {}), run.devices)
    phase._generator_fn = still
    return run, phase, method.mechanism_at(0).name


def voting(folder):
    gan = gan_of(g_pate__steps=10)
    run = tiny.run(folder, gan.config)
    phase = GPatePhase(run, gan)
    phase._gan = SimpleNamespace(step=noted)
    return run, phase, 'votes'


@pytest.mark.parametrize('unrolls', [True, False])
@pytest.mark.parametrize('make', [sampled, adversarial, voting])
def test_each_step_of_a_window_has_its_own_keys_and_draw(
    make, unrolls, monkeypatch, tmp_path
):
    monkeypatch.setattr(Run, 'unrolls', property(lambda self: unrolls))
    run, phase, name = make(tmp_path)
    state, step = parallel.replicate(nothing(), run.devices), 0
    while step < phase.total_steps:
        state, step, _ = phase.window(state, step)
    seen = parallel.unreplicate(state)
    assert seen['steps'] == phase.total_steps <= MOST
    for t in range(phase.total_steps):
        np.testing.assert_array_equal(seen['noise'][t], run.keys.noise(name, t))
        np.testing.assert_array_equal(seen['public'][t], run.keys.public('step', t))
    assert len(set(seen['drawn'][: phase.total_steps].tolist())) > 1


def test_a_pass_over_all_records_is_not_charged_as_a_sample(tmp_path):
    run = tiny.run(tmp_path, tiny.config(method='dp_merf'))
    (mechanism,) = run.plan.mechanisms
    seen = []
    add = lambda sums, chunk: seen.append(chunk) or sums  # noqa: E731
    sums_of_all(run, mechanism, (3,), add)
    assert seen
    sampled_half = dataclasses.replace(mechanism, sampling_prob=0.5)
    with pytest.raises(ValueError, match='sums all records, but is charged at q = 0.5'):
        sums_of_all(run, sampled_half, (3,), add)
