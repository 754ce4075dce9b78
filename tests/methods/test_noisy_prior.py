"""A class histogram in front of any method: charged, released once, and sampled by."""

import dataclasses
import json

import numpy as np
import pytest
import tiny
import tiny_runs
from dp_accounting import LaplaceDpEvent

from dpaf_jax import methods
from dpaf_jax.config import from_config_dict
from dpaf_jax.methods.dpba_wgan.critic import DpbaWgan
from dpaf_jax.methods.dpba_wgan.plan import scale_of_step
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.bundle import load_release
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.statement import recompute
from dpaf_jax.verify.verification import verify

SHARES = 0.8, 0.2


def config_dict(tmp_path, method='dp_merf', **changes):
    """Grey 8 x 8 images in two classes, four of five in the first."""
    rng = np.random.default_rng(0)
    labels = (np.arange(100) % 5 == 0).astype(int)
    images = (rng.integers(0, 100, (100, 8, 8)) + 100 * labels[:, None, None]).astype(
        'u1'
    )
    path = tmp_path / 'x.npz'
    np.savez(path, train_x=images, train_y=labels, test_x=images, test_y=labels)
    config = tiny_runs.load_config(method, 'digits')
    small = {'data__num_classes': 2, 'data__noisy_prior': 0.1}
    return tiny_runs.shrink(config, f'npz:{path}', **small | changes)


@pytest.mark.parametrize('method', ['dp_merf', 'gs_wgan'])
def test_the_histogram_takes_its_share_of_epsilon(tmp_path, method):
    config = from_config_dict(config_dict(tmp_path, method))
    plan = methods.plan(config, 100)
    classes, *own = plan.mechanisms
    epsilon = config.privacy.epsilon
    assert (classes.name, classes.law, classes.l2_sensitivity) == (
        'classes',
        'laplace',
        1,
    )
    assert classes.noise_multiplier == pytest.approx(1 / (0.1 * epsilon))
    assert accounting.epsilon_pld(
        LaplaceDpEvent(classes.noise_multiplier), 1e-9
    ) == pytest.approx(0.1 * epsilon, abs=1e-3)
    assert plan.guarantee == CERTIFIED and plan.epsilon <= epsilon
    whole = accounting.epsilon_pld(plan.dp_event, plan.delta - plan.overflow_delta)
    assert whole == pytest.approx(plan.epsilon, abs=2e-4)
    alone = methods.plan(
        from_config_dict(config_dict(tmp_path, method, data__noisy_prior=0.0)), 100
    )
    assert own[0].noise_multiplier > alone.mechanisms[0].noise_multiplier


@pytest.mark.parametrize('levels', [1, 3])
def test_every_critic_step_has_its_own_noise_and_draw_beside_a_histogram(levels):
    """DPBA-WGAN has several mechanisms; the histogram's stands in front of them."""
    fields = {'dpba_wgan__noise_levels': levels, 'dpba_wgan__generator_steps': 20}
    config = tiny.config(method='dpba_wgan', data__noisy_prior=0.1, **fields)
    plan = methods.plan(config, 100)
    method = DpbaWgan(config, plan, 1)
    steps = range(20 * config.dpba_wgan.discriminator_steps)
    scales = scale_of_step(config.dpba_wgan)
    for step in steps:
        assert method.mechanism_at(step) == plan[f'critic_{scales[step]}']
    charged = method.charged(len(steps))
    assert charged == {m.name: m.steps for m in plan.mechanisms if m.name != 'classes'}
    coarsest = max(plan[name].grid.spacing for name in charged)
    assert method.grid.spacing == coarsest


def test_the_method_trains_with_what_the_histogram_leaves_of_epsilon(tmp_path):
    config, seen = from_config_dict(config_dict(tmp_path)), []

    def train(run):
        seen.append(run.config.privacy.epsilon)
        return {'generator': {}}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods.embedding.dp_merf, 'train', train)
        methods.train(tiny.run(tmp_path, config))
    assert seen == [pytest.approx(0.9 * config.privacy.epsilon)]


def test_samples_follow_the_noisy_shares_and_the_release_verifies(tmp_path):
    config = config_dict(tmp_path, privacy__epsilon=20.0)
    pipeline = Pipeline(config, tmp_path / 'run')
    for stage in ('prepare', 'plan', 'release'):
        pipeline.run(stage)
    release = load_release(pipeline.workdir.release)
    assert release.prior == pytest.approx(SHARES, abs=0.1)
    assert sum(release.prior) == pytest.approx(1)
    _, labels = release.sample(100, seed=1)
    assert np.bincount(labels) == pytest.approx(100 * np.array(release.prior), abs=1)
    assert verify(pipeline.workdir.release).passed
    kept = json.loads((pipeline.workdir.release / 'config.json').read_text())
    assert kept['data']['class_prior'] == []  # the exact shares stand nowhere


def test_the_method_learns_by_the_noisy_shares(tmp_path):
    config = from_config_dict(config_dict(tmp_path))
    seen = []

    def train(run):
        seen.append(run.config.data.prior)
        return {'generator': {}}

    run = tiny.run(tmp_path, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods.embedding.dp_merf, 'train', train)
        first, second = methods.train(run), methods.train(run)
    assert seen[0] == pytest.approx(tuple(first['prior']['classes']))
    np.testing.assert_array_equal(first['prior']['classes'], second['prior']['classes'])
    exact = np.bincount(run.data.labels, minlength=2) / len(run.data.labels)
    assert not np.allclose(first['prior']['classes'], exact, atol=1e-6)


def test_the_histogram_is_the_same_where_a_run_goes_on_on_another_machine(tmp_path):
    """A second draw of noise on the same counts would be a second release."""
    config = from_config_dict(config_dict(tmp_path))
    run = tiny.run(tmp_path, config)
    moved = dataclasses.replace(run, keys=tiny.keys(fingerprint='e' * 64))
    other = dataclasses.replace(run, keys=tiny.keys(bytes(range(32, 64))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods.embedding.dp_merf, 'train', lambda run: {})
        here, there, elsewhere = (
            methods.train(r)['prior']['classes'] for r in (run, moved, other)
        )
    np.testing.assert_array_equal(here, there)
    assert not np.array_equal(here, elsewhere)


@pytest.mark.parametrize('share', [0.01, 0.5])
def test_a_release_of_any_share_verifies(tmp_path, share):
    """Laplace noise is exact at every scale: its multiplier has no least."""
    plan = methods.plan(
        from_config_dict(config_dict(tmp_path, data__noisy_prior=share)), 100
    )
    assert recompute(plan.to_json()).pld == pytest.approx(plan.epsilon, abs=2e-4)


def test_a_stated_prior_does_not_go_with_it(tmp_path):
    with pytest.raises(
        UserError, match='noisy_prior: is .*where config.data.class_prior is stated'
    ):
        from_config_dict(config_dict(tmp_path, data__class_prior=(0.5, 0.5)))


def as_published(method):
    fields = {'data__noisy_prior': 0.1, 'privacy__guarantee': 'as_published'}
    return methods.plan(tiny.config(method=method, **fields), 40)


def test_as_published_it_goes_with_what_is_certified_all_the_same():
    """G-PATE, section 6.2, estimates the class distribution so."""
    plan = as_published('g_pate')
    assert plan.guarantee == CERTIFIED
    assert recompute(plan.to_json()).pld == pytest.approx(plan.epsilon, abs=2e-4)
    with pytest.raises(
        UserError, match='noisy_prior: is above 0.*as_published. Set it'
    ):
        as_published('dpba_wgan')


def test_training_adds_the_plans_noise_to_the_histogram(tmp_path, monkeypatch):
    config, scales = tiny.config(method='dp_merf', data__noisy_prior=0.1), []
    run = tiny.run(tmp_path, config)

    def noted(exact, scale, rng):
        scales.append(scale)
        return exact

    monkeypatch.setattr(methods, 'add_laplace', noted)
    monkeypatch.setattr(methods.embedding.dp_merf, 'train', lambda run: {})
    methods.train(run)
    assert scales == [run.plan['classes'].noise_std]


def test_draws_that_may_exceed_their_slots_are_paid_for_beside_a_histogram(tmp_path):
    config = from_config_dict(config_dict(tmp_path, 'dp_gan', dp_gan__batch_size=10))
    plan = methods.plan(config, 100)
    owed = sum(accounting.overflow_delta(m, 100) for m in plan.mechanisms[1:])
    assert plan.overflow_delta == pytest.approx(owed) and owed > 0
