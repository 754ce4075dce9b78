"""DP-BigGAN and DP-PGGAN: the bound of DP-GAN, their losses, and growth in a run."""

import math
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs
from adversaries import moves, trained, unclipped

from dpaf_jax.audit.methods import adversarial as auditing
from dpaf_jax.audit.methods import dp_gan as dp_gan_audit
from dpaf_jax.config import from_public_dict, public_dict
from dpaf_jax.methods import dp_gan
from dpaf_jax.methods.adversarial.wgan import Trio
from dpaf_jax.methods.dp_gan import networks
from dpaf_jax.methods.dp_gan.gan import DpGan
from dpaf_jax.networks.gans.growth import grown_alone, weights_at
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.bundle import load_release
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.verification import verify

CLIP, PHASES = 0.02, 5  # of two doublings
BOTH = ['biggan', 'pggan']


def settings(network, **fields):
    small = {
        'method': 'dp_gan',
        'dp_gan__network': network,
        'dp_gan__l2_clip_norm': CLIP,
        'dp_gan__discriminator_steps': 2,
        'dp_gan__generator_steps': PHASES,
    }
    return tiny.config(**{**small, **fields})


def gan_of(network, number=1, **fields):
    config = settings(network, **fields)
    return DpGan(config, tiny.plan(config), number)


# --- the guarantee --------------------------------------------------------------------


def test_the_plan_is_the_same_whatever_the_network():
    plans = [tiny.plan(settings(name)) for name in ('dcgan', *BOTH)]
    assert plans[0] == plans[1] == plans[2] and plans[0].guarantee == CERTIFIED


@pytest.mark.slow
@pytest.mark.parametrize('network', BOTH)
def test_one_record_moves_the_sum_by_at_most_the_clip_bound(network):
    far = moves(gan_of(network), 1)
    assert 0.9 * CLIP < far.max() <= CLIP


@pytest.mark.slow
@pytest.mark.parametrize('network', BOTH)
def test_so_it_is_on_8_devices_and_no_clip_is_found_out(network):
    assert 0.9 * CLIP < moves(gan_of(network, 8), 8).max() <= CLIP
    assert moves(unclipped(gan_of(network)), 1).max() > 2 * CLIP


@pytest.mark.slow
@pytest.mark.parametrize('network', BOTH)
def test_the_audit_passes_it(network, monkeypatch):
    monkeypatch.setattr(auditing, 'STATES', 3)
    config = settings(network)
    plan = tiny.plan(config)
    (target,) = dp_gan_audit.audit_targets(config, plan, (1,))
    assert {int(scene.state.generator.steps) for scene in target.scenes} == {0, 2, 4}
    assert not tiny.audit_failures(target, plan)


# --- losses ---------------------------------------------------------------------------


class Linear:
    """A discriminator: the mean of pixels times `params`, whatever the label."""

    def apply(self, params, images, labels):
        return params * jnp.mean(images, axis=(1, 2, 3))


TRIO = Trio(np.ones((2, 2, 1)), np.full((2, 2, 1), -2.0), np.int32(0), np.float32(0.5))


def test_the_hinge_stops_at_1_and_minus_1():
    losses = [networks.hinge(Linear(), scale, TRIO) for scale in (0.25, 1.0, -1.0)]
    assert losses == [0.75 + 0.5, 0, 2 + 3]


def test_the_wasserstein_loss_has_penalty_and_drift():
    # The gradient by 4 pixels is scale / 4 each: its norm is scale / 2.
    loss = networks.wasserstein(Linear(), 3.0, TRIO)
    assert loss == pytest.approx(-6 - 3 + 10 * (3 / 2 - 1) ** 2 + 1e-3 * 9)


# --- growing --------------------------------------------------------------------------


def state_of(gan, step):
    shapes = jax.eval_shape(gan.adversaries.init, jax.random.key(0))
    state = auditing.wild_networks(shapes, ['discriminator', 'generator'], 0)
    return state._replace(generator=state.generator._replace(steps=np.int32(step)))


def ones_like(tree):
    return jax.tree.map(np.ones_like, tree)


def test_noise_does_not_move_what_has_not_begun():
    gan = gan_of('pggan')
    update = jax.jit(gan.adversaries.update_discriminator)
    for step in range(PHASES):
        before = state_of(gan, step)
        params = before.discriminator
        after, _ = update(before, ones_like(params))
        moved = jax.tree.map(lambda a, b: a != b, after.discriminator, params)
        wanted = grown_alone(ones_like(moved), weights_at(step / PHASES, 2))
        assert jax.tree.all(jax.tree.map(lambda m, w: np.all(m == w), moved, wanted))


def test_optimisers_begin_anew_where_a_doubling_begins_and_only_there():
    gan, anew = gan_of('pggan'), []
    update = jax.jit(gan.adversaries.apply_generator_gradient)
    for step in range(PHASES):
        before = state_of(gan, step)
        generator = before.generator
        opt_state = ones_like(generator.opt_state)
        before = before._replace(
            generator=generator._replace(opt_state=opt_state),
            discriminator_opt_state=ones_like(before.discriminator_opt_state),
        )
        after = update(before, ones_like(generator.params))
        pair = after.generator.opt_state, after.discriminator_opt_state
        if not any(np.any(leaf) for leaf in jax.tree.leaves(pair)):
            anew.append(step + 1)
    assert anew == [
        2,
        4,
    ]  # of five phases of one step, the fades are the second and fourth


@pytest.mark.slow
def test_pictures_of_a_run_show_what_has_grown():
    gan = gan_of('pggan')
    adversaries = gan.adversaries
    key, labels = jax.random.key(0), np.zeros(2, int)
    params = jax.jit(adversaries.sampler.init)(key)

    def picture(step):
        state = state_of(gan, step)
        return np.asarray(adversaries.shown(state).sample(params, key, labels))

    early, late = picture(0), picture(PHASES)
    squares = early.reshape(2, 2, 4, 2, 4)
    assert np.ptp(squares, axis=(2, 4)).max() < 1e-6 < 1e-3 < np.ptp(late)
    whole = adversaries.sampler.sample(params, key, labels)
    np.testing.assert_allclose(late, whole, atol=1e-6)


def test_too_few_steps_to_grow_are_refused_before_work_starts():
    with pytest.raises(UserError, match=r'generator_steps: is 4, .* Use at least 5'):
        dp_gan.plan(settings('pggan', dp_gan__generator_steps=4), 40)


# --- config, release ------------------------------------------------------------------


@pytest.mark.parametrize('network', BOTH)
def test_another_generator_beside_its_own_is_refused(network):
    config = settings(network, networks__generator='styled')
    with pytest.raises(UserError, match=f"generator: is 'styled', but {network} has"):
        dp_gan.plan(config, 40)


def test_a_release_from_before_the_choice_is_dcgan():
    fields = public_dict(settings('dcgan'))
    del fields['dp_gan']['network']
    assert from_public_dict(fields).dp_gan.network == 'dcgan'


@pytest.mark.slow
@pytest.mark.parametrize('network', ['pggan', 'biggan'])
def test_a_run_releases_what_verify_accepts_and_samples_come_from(network, tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    small = {name: getattr(settings(network).dp_gan, name) for name in (
        'network', 'batch_size', 'width', 'fc_width', 'discriminator_steps',
        'generator_steps', 'generator_batch_size',
    )}  # fmt: skip
    config = tiny_runs.one_shot(source, method='dp_gan')
    config.dp_gan.update(small)
    pipeline = Pipeline(config, tmp_path / 'run')
    with tiny_runs.accounting_grid():
        for stage in ('prepare', 'plan', 'train', 'release'):
            pipeline.run(stage)
        assert verify(tmp_path / 'run' / 'release').passed
    images, labels = load_release(tmp_path / 'run' / 'release').sample(6, seed=1)
    assert images.shape == (6, 8, 8, 1) and len(labels) == 6


@pytest.mark.slow
@pytest.mark.parametrize('network', BOTH)
def test_a_whole_phase_trains_both_networks(network):
    start, end, metrics = trained(DpGan, settings(network))
    assert set(metrics) >= {'noisy_gradient_norm', 'loss_generator'}
    assert math.isfinite(metrics['loss_generator'][0])
    for name in ('discriminator', 'generator.params', 'generator.ema_params'):
        part = operator.attrgetter(name)
        same = jax.tree.map(np.array_equal, part(start), part(end))
        moved = [not leaf for leaf in jax.tree.leaves(same)]
        assert sum(moved) > 0.8 * len(moved)
