"""P3GM: three releases of their sensitivities, an encoder that stays, what each computes."""

import functools
import math
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sensitivity
import tiny
import tiny_runs

from dpaf_jax.audit.methods import p3gm as audit
from dpaf_jax.methods import p3gm
from dpaf_jax.methods.p3gm import decoder, moments
from dpaf_jax.methods.p3gm.decoder import PhasedVae, Shot
from dpaf_jax.methods.p3gm.train import DecoderPhase, MomentsPhase, released
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy import accounting, aggregation, clipping
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.bundle import load_release
from dpaf_jax.release.samplers.p3gm import PhasedSampler
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.verification import verify

KEY = np.arange(4, dtype=np.uint32)
CLIP = 0.02
# Extreme images reach all bounds: rows of the norm that a row has at most, steep gradients.
BOUND = {'p3gm__row_norm': 0.1, 'p3gm__l2_clip_norm': CLIP}


def vae_of(sigma=1.0, **fields):
    config = tiny.config(method='p3gm', **fields)
    return PhasedVae(config, tiny.plan(config, sigma))


def wild(vae, seed):
    return audit._wild(vae.config, vae.plan, seed)


# --- the plan -------------------------------------------------------------------------


def test_three_mechanisms_share_epsilon_and_the_decoder_takes_the_rest():
    shares = {'pca': 1.0, 'em': 2.0}
    config = tiny.config(method='p3gm', privacy__budgets='10%,rest,20%')
    plan = p3gm.plan(config, 40)
    assert [m.name for m in plan.mechanisms] == ['pca', 'em', 'decoder']
    for name, share in shares.items():
        m = plan[name]
        assert (m.sampling_prob, m.steps, m.l2_sensitivity) == (1, 1, 1)
        alone = accounting.epsilon_pld(m.event(), plan.delta - plan.overflow_delta)
        assert 0.99 * share < alone <= share
    m = plan['decoder']
    assert (m.sampling_prob, m.steps, m.l2_sensitivity) == (0.2, 4, 1.0)
    whole = accounting.epsilon_pld(plan.dp_event, plan.delta - plan.overflow_delta)
    assert 9.9 < whole <= plan.epsilon <= 10 and plan.guarantee == CERTIFIED


@pytest.mark.parametrize(('field', 'value'), [('batch_size', 41), ('dims', 65)])
def test_what_does_not_fit_is_refused_by_name(field, value):
    config = tiny.config(method='p3gm', **{f'p3gm__{field}': value})
    with pytest.raises(UserError, match=f'config.p3gm.{field}'):
        p3gm.plan(config, 40)


# --- sensitivity ----------------------------------------------------------------------

QUERIES = {
    'pca': lambda vae, state, batch: vae.encoder.products(state.moments, batch),
    'em': lambda vae, state, batch: vae.encoder.class_moments(state.moments, batch),
    'decoder': lambda vae, state, batch: vae.query(state, batch, KEY),
}


def summed(vae, name, number):
    return tiny.over_devices(functools.partial(QUERIES[name], vae), number)


@pytest.mark.slow
@pytest.mark.parametrize('number', [1, 8])
@pytest.mark.parametrize('name', QUERIES)
def test_one_record_moves_a_sum_by_the_sensitivity_at_most(name, number):
    vae = vae_of(**BOUND)
    states = [wild(vae, seed) for seed in range(1 if name == 'pca' else 3)]
    bound = vae.plan[name].l2_sensitivity
    assert bound == (CLIP if name == 'decoder' else 1)
    sensitivity.check(
        summed(vae, name, number), number, states, sensitivity.make_units(False), bound
    )


@pytest.mark.parametrize(('name', 'clips'), [
    ('pca', [(moments, 'clip_vector')]),
    ('em', [(moments, 'clip_vector'), (aggregation, 'clip_vector')]),
    ('decoder', [(clipping, 'clip_factor')]),
])  # fmt: skip
def test_a_clip_that_is_forgotten_is_found_out(name, clips):
    vae = vae_of(**BOUND)
    units = sensitivity.make_units(False)
    forget = {'clip_vector': lambda v, _: v, 'clip_factor': lambda *_: jnp.float32(1)}
    for place, what in clips:
        mock.patch.object(place, what, forget[what]).start()
    far = sensitivity.moves(summed(vae, name, 1), 1, [wild(vae, 1)], units)
    mock.patch.stopall()
    assert far.max() > 1.5 * vae.plan[name].l2_sensitivity


@pytest.mark.parametrize('name', QUERIES)
def test_slots_without_a_record_add_nothing(name):
    vae, units = vae_of(), sensitivity.make_units(False)
    nobody = units._replace(is_padding_example=np.ones_like(units.is_padding_example))
    query = summed(vae, name, 1)
    assert not np.any(sensitivity.summed(query, 1, wild(vae, 0), nobody))
    assert np.any(sensitivity.summed(query, 1, wild(vae, 0), units))


def test_a_record_enters_its_own_classes_moments_alone():
    vae, units = vae_of(), sensitivity.make_units(False)
    labels = np.full_like(units.labels, 2)
    query = summed(vae, 'em', 1)
    found = sensitivity.summed(query, 1, wild(vae, 0), units._replace(labels=labels))
    table = found.reshape(3, -1)
    assert np.any(table[2]) and not np.any(table[:2])


# --- noise ----------------------------------------------------------------------------


def noisy(vae, name, state, batch, key):
    """What everybody sees of a release, by the package's own step."""
    number = len(key)
    step = audit._step(name, vae)
    dealt = type(batch)(*(x.reshape(number, -1, *x.shape[1:]) for x in batch))
    devices = jax.local_devices()[:number]
    made = parallel.pmapped(step, devices)(
        parallel.replicate(state, devices), dealt, key
    )
    return np.ravel(parallel.unreplicate(made))


@pytest.mark.slow
@pytest.mark.parametrize('number', [1, 8])
@pytest.mark.parametrize('name', QUERIES)
def test_a_release_has_the_plans_noise_once(name, number):
    vae, units = vae_of(sigma=1.3), sensitivity.make_units(False)
    state = wild(vae, 0)
    exact = sensitivity.summed(summed(vae, name, 1), 1, state, units)
    keys = [np.arange(8, dtype=np.uint32) + i for i in (0, 8)]
    noise = [
        noisy(vae, name, state, units, np.tile(key, (number, 1))) - exact
        for key in keys
    ]
    for draw in noise:
        size, std = draw.size, vae.plan[name].noise_std
        assert draw.std() == pytest.approx(std, rel=5 / math.sqrt(2 * size))
        assert abs(draw.mean()) < 5 * std / math.sqrt(size)
    assert abs(np.corrcoef(*noise)[0, 1]) < 5 / math.sqrt(noise[0].size)


def test_every_release_has_a_key_of_its_own_and_phase_1_reads_all_records():
    vae = vae_of()
    traced = audit.trace(vae.config, vae.plan, tiny.keys())
    assert {name: len(key) for name, key in traced.keys.items()} == {
        'pca': 1,
        'em': 1,
        'decoder': 4,
    }
    every = np.concatenate(list(traced.keys.values()))
    assert len(np.unique(every, axis=0)) == 6
    for name in ('pca', 'em'):
        (chosen,) = traced.draws[name].chosen
        np.testing.assert_array_equal(np.sort(chosen), np.arange(tiny.NUM_EXAMPLES))


# --- what phase 1 makes ---------------------------------------------------------------


def learnt(number=1, **fields):
    """Phase 1 without noise, and its data."""
    fields = {'privacy__epsilon': math.inf, 'p3gm__code_norm': 9.0} | fields
    config = tiny.config(method='p3gm', **fields)
    run = tiny.run('unused', config, number, sigma=0.0)
    vae = PhasedVae(config, run.plan)
    phase = MomentsPhase(run, vae.encoder)
    state, step = parallel.replicate(phase.init(), run.devices), 0
    while step < phase.total_steps:
        state, step, _ = phase.window(state, step)
    return vae, run.data, parallel.unreplicate(state)


@pytest.mark.parametrize('number', [pytest.param(1, marks=pytest.mark.slow), 8])
def test_without_noise_it_is_pca_and_the_classes_own_gaussians(number):
    vae, data, made = learnt(number)
    rows = data.images.reshape(40, -1) / 255 / (0.5 * 8)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
    _, vectors = np.linalg.eigh(rows.T @ rows)
    codes = rows @ made.basis
    np.testing.assert_allclose(codes.T @ codes / 40, np.eye(4), atol=1e-3)
    cosines = np.linalg.svd(
        np.linalg.qr(made.basis)[0].T @ vectors[:, -4:], compute_uv=False
    )
    np.testing.assert_allclose(cosines, 1, atol=1e-3)  # the same four directions
    np.testing.assert_allclose(vae.encoder.codes(made, data.images), codes, atol=1e-3)
    for k in range(3):
        own = codes[data.labels == k]
        np.testing.assert_allclose(made.means[k], own.mean(axis=0), atol=1e-3)
        spread = np.cov(own.T, bias=True)
        np.testing.assert_allclose(
            made.factors[k] @ made.factors[k].T, spread, atol=0.03
        )


def test_a_class_of_nobody_and_noise_alone_still_make_a_gaussian():
    encoder = vae_of().encoder
    noise = np.random.default_rng(0).normal(size=(3, 21)).astype(np.float32)
    made = encoder.mixed(encoder.init(), jnp.asarray(30 * noise))
    for k in range(3):
        values = np.linalg.eigvalsh(made.factors[k] @ made.factors[k].T)
        bound = 1.3**2 * 4
        assert np.all(values > 0.009) and np.all(values < 1.01 * bound)
    directed = encoder.directed(encoder.init(), -jnp.eye(64))
    assert np.all(np.isfinite(directed.basis))


def test_a_code_is_no_longer_than_its_bound():
    vae = vae_of()
    codes = vae.encoder.codes(wild(vae, 2).moments, tiny.dataset(vae.config).images)
    assert np.linalg.norm(codes, axis=1).max() <= 1.3 * 2


# --- what phase 2 makes ---------------------------------------------------------------


def test_the_encoder_variance_descends_the_divergence_from_the_classes_gaussian():
    vae, rng = vae_of(), np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 4, 4)))
    factors = jnp.asarray(turn * rng.uniform(0.3, 2, (3, 1, 4)), jnp.float32)
    shot = Shot(jnp.full((8, 8, 1), 0.5), jnp.int32(1), jnp.zeros(4), jnp.zeros(4))
    log_std = jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)
    params = {**wild(vae, 0).vae.params, 'log_std': log_std}
    # Without a draw only the divergence depends on the variance.
    slope = jax.jit(jax.grad(vae.loss))(params, factors, shot)['log_std']

    def divergence(log_std):
        inverse = jnp.linalg.inv(factors[1] @ factors[1].T)
        spread = jnp.diag(jnp.exp(2 * log_std[1]))
        return jnp.trace(inverse @ spread) / 2 - jnp.sum(log_std[1])

    np.testing.assert_allclose(slope, jax.grad(divergence)(log_std), rtol=1e-2)
    assert not np.any(slope[0])


@pytest.mark.slow
def test_the_decoder_learns_and_the_encoder_stays():
    vae, data, made = learnt(p3gm__learning_rate=0.02, p3gm__steps=40, p3gm__width=16)
    step = parallel.pmapped(vae.step, jax.local_devices()[:1])
    batch = tiny.batch(data.images, data.labels)
    dealt = type(batch)(*(np.asarray(x)[None] for x in batch))
    start = vae.init(jax.random.key(0), made)
    state = parallel.replicate(start, jax.local_devices()[:1])

    def loss(state):
        codes = vae.encoder.codes(state.moments, data.images)
        pixels = data.images / 255.0
        shots = Shot(pixels, jnp.asarray(data.labels), codes, jnp.zeros_like(codes))
        each = jax.jit(jax.vmap(vae.loss, (None, None, 0)))
        given = state.vae.params, state.moments.factors
        return float(jnp.mean(each(*jax.tree.map(jnp.asarray, given), shots)))

    for t in range(40):
        keys = tiny.keys().noise('decoder', t)[None], tiny.keys().public('s', t)[None]
        state, _ = step(state, dealt, *keys)
    end = parallel.unreplicate(state)
    assert loss(end) < 0.97 * loss(start)
    assert not np.array_equal(end.vae.params['log_std'], start.vae.params['log_std'])
    for one, other in zip(end.moments, made, strict=True):
        np.testing.assert_array_equal(one, other)


def test_phase_2_tells_what_phase_1_has_spent_and_releases_no_encoder(tmp_path):
    run = tiny.run(tmp_path, tiny.config(method='p3gm'))
    vae = PhasedVae(run.config, run.plan)
    phase = DecoderPhase(run, vae, vae.encoder.init())
    assert phase.charged(3) == {'pca': 1, 'em': 1, 'decoder': 3}
    assert MomentsPhase(run, vae.encoder).charged(1) == {'pca': 1, 'em': 0}
    made = released(phase.init())
    assert set(made) == {'decoder', 'mixture'} and 'log_std' not in made['decoder']


# --- the sampler ----------------------------------------------------------------------


def test_codes_follow_the_gaussian_of_the_label():
    def shown(_, codes, labels):
        return codes[:, None, None] / 10

    fake = SimpleNamespace(apply=shown, num_classes=2)
    sampler = PhasedSampler(fake, dims=2)
    factors = np.array([[[1, 0], [0, 2]], [[1, 1], [-1, 1]]], np.float32)
    means = np.array([[0, 0], [5, -5]], np.float32)
    params = {'decoder': {}, 'mixture': {'means': means, 'factors': factors}}
    labels = np.repeat([0, 1], 20_000)
    made = sampler.sample(params, jax.random.key(0), labels)
    codes = 20 * np.arctanh(np.asarray(made, np.float64))[:, 0, 0]
    for k in (0, 1):
        own = codes[labels == k]
        np.testing.assert_allclose(own.mean(axis=0), means[k], atol=0.06)
        np.testing.assert_allclose(np.cov(own.T), factors[k] @ factors[k].T, atol=0.12)


# --- whole runs -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_release_verifies_and_draws(tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    small = {'dims': 3, 'width': 4, 'batch_size': 4, 'steps': 2}
    fields = {f'p3gm__{name}': value for name, value in small.items()}
    made = tiny_runs.one_shot(source, method='p3gm', **fields)
    pipeline = Pipeline(made, tmp_path / 'run', entropy=tiny_runs.ENTROPY)
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
    folder = tmp_path / 'run' / 'release'
    images, labels = load_release(folder).sample(10, seed=0)
    assert images.shape == (10, 8, 8, 1) and set(labels) == {0, 1}
    checks = verify(folder).checks
    assert all(check.passed is not False for check in checks), checks


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_faults():
    vae = vae_of(**BOUND)

    def failures(name, devices=(1,)):
        targets = audit.audit_targets(vae.config, vae.plan, devices)
        (target,) = (t for t in targets if t.mechanism.name == name)
        return tiny.audit_failures(target, vae.plan)

    for name in QUERIES:
        assert not failures(name, (1, 8))
    with mock.patch.object(moments, 'clip_vector', lambda v, _: 3 * v):
        assert 'sensitivity' in failures('pca')
    for place, name in ((moments, 'em'), (decoder, 'decoder')):
        noisy = place.noisy_total
        half = lambda s, k, std, noisy=noisy: noisy(s, k, std / 2)  # noqa: E731
        with mock.patch.object(place, 'noisy_total', half):
            assert 'noise level' in failures(name)
