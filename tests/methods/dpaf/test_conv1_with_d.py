"""conv1 that learns with the discriminator, by a mechanism of its own (preprint, Table 5)."""

import jax
import numpy as np
import pytest
import tiny
from planted import coin_failures, mechanism_failures
from tiny_phases import gan_phase, train

from dpaf_jax.methods import dpaf
from dpaf_jax.methods.dpaf.phase2.conv2_update import conv2_step
from dpaf_jax.methods.dpaf.phase2.gan import Gan, StepKeys
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError

WITH_D = {'dpaf__classifier__private': 'discriminator'}


def test_it_has_a_mechanism_beside_conv2s_and_its_own_share_of_epsilon():
    fields = WITH_D | {'dpaf__classifier__l2_clip_norm': 0.3}
    config = tiny.config(privacy__budgets='33%,rest,33%', **fields)
    plan = dpaf.plan(config, tiny.NUM_EXAMPLES)
    conv1, conv2, dpagg = plan.mechanisms
    assert [m.name for m in plan.mechanisms] == ['conv1', 'conv2', 'dpagg']
    assert (conv1.l2_sensitivity, conv2.l2_sensitivity) == (0.3, 1.0)
    for field in ('steps', 'sampling_prob', 'expected_batch_size', 'num_groups'):
        assert getattr(conv1, field) == getattr(conv2, field)
    assert conv1.steps == dpagg.steps // config.dpaf.asymmetry
    assert conv1.noise_multiplier > 0 and plan.epsilon <= config.privacy.epsilon


@pytest.mark.parametrize(('fields', 'problem'), [
    ({'dpaf__conv2__gradient': 'none'}, r"private: is 'discriminator', but conv2\* does"),
    ({'dpaf__classifier__learning_rate': 0.0}, 'learning_rate: is 0'),
    ({'dpaf__conv2__with_conv1': True}, 'with_conv1: is True, but .* learns by itself'),
])  # fmt: skip
def test_what_it_does_not_fit_is_refused(fields, problem):
    with pytest.raises(UserError, match=problem):
        dpaf.plan(tiny.config(**WITH_D, **fields), tiny.NUM_EXAMPLES)


@pytest.mark.parametrize('guarantee', ['certified', 'as_published'])
def test_there_is_no_phase_1_and_each_update_is_charged(guarantee):
    run, gan, phase, _ = gan_phase(1, **WITH_D, privacy__guarantee=guarantee)
    assert gan.updates == {'conv1': ('conv1',), 'conv2': ('conv2',)}
    updates = run.plan['conv1'].steps
    assert phase.charged(0) == {'conv1': 0, 'conv2': 0, 'dpagg': 0}
    done = phase.charged(phase.total_steps)
    assert done == {m.name: m.steps for m in run.plan.mechanisms} and updates > 0


@pytest.mark.slow
def test_an_update_moves_its_own_part_and_forgets_what_no_longer_fits():
    config = tiny.config(**WITH_D)
    gan = Gan(config, tiny.plan(config), 1)
    state = tiny.state(gan)._replace(num_pooled=np.ones(1, np.float32))
    noise = {name: np.arange(8, dtype=np.uint32) for name in gan.updates}
    keys = StepKeys(
        noise['conv1'], noise['conv2'], noise, np.arange(4, dtype=np.uint32)
    )
    data = tiny.dataset(config, 6)
    step = jax.jit(
        lambda s, b, name: jax.vmap(
            lambda s, b: conv2_step(gan, s, b, keys, name=name),
            axis_name=parallel.AXIS,
            in_axes=None,
            axis_size=1,
        )(s, b),
        static_argnums=2,
    )
    for name in gan.updates:
        after = step(state, tiny.batch(data.images, data.labels), name)
        moved = {
            part
            for part, params in after.params.items()
            if not all(
                np.array_equal(a[0], b)
                for a, b in zip(
                    jax.tree.leaves(params),
                    jax.tree.leaves(state.params[part]),
                    strict=True,
                )
            )
        }
        assert moved == {name} and not after.num_pooled.any()


@pytest.mark.slow
def test_the_whole_phase_trains_both():
    run, _, phase, start = gan_phase(1, **WITH_D)
    end = train(run, phase, start)
    for part in ('conv1', 'conv2'):
        before, after = (tiny.vector(s.params[part]) for s in (start, end))
        assert not np.array_equal(before, after)


@pytest.mark.slow
def test_its_draws_and_keys_are_its_own():
    assert not coin_failures(noise=('conv1', 'conv2'), **WITH_D)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['conv1', 'conv2'])
def test_the_audit_finds_nothing(name):
    assert not mechanism_failures(name, **WITH_D)
