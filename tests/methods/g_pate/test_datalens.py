"""DataLens: bounded signs of each teacher, every sum charged, a student that follows."""

import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs
from g_pate_cases import audited, mixed, with_empty_slots

from dpaf_jax.audit.methods import g_pate as audit
from dpaf_jax.methods.g_pate import datalens
from dpaf_jax.methods.g_pate.datalens import DataLens, top_signs
from dpaf_jax.methods.g_pate.student import Fakes, GPate
from dpaf_jax.methods.g_pate.teachers import coarse_shape
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy import voting
from dpaf_jax.privacy.noise import noisy_total
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.bundle import load_release
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.accountant import gaussian_epsilon
from dpaf_jax.verify.verification import verify

K = 5  # tiny.config's top_k


def settings(**fields):
    return tiny.config(method='datalens', **fields)


def lens_of(sigma=1.0, **fields):
    config = settings(**fields)
    return DataLens(config, tiny.plan(config, sigma))


# --- the plan -------------------------------------------------------------------------


@pytest.mark.parametrize('epsilon', [1.0, 10.0])
def test_every_sum_of_every_fake_of_every_step_is_charged(epsilon):
    plan = datalens.plan(settings(privacy__epsilon=epsilon), 40)
    (m,) = plan.mechanisms
    assert (m.name, m.sampling_prob, m.steps) == ('signs', 1, 4 * 6)
    assert m.l2_sensitivity == 2 * math.sqrt(K)
    assert plan.overflow_delta == 0 and plan.guarantee == CERTIFIED
    exact = gaussian_epsilon(
        math.sqrt(m.steps) * m.l2_sensitivity / m.noise_std, plan.delta
    )
    assert exact <= plan.epsilon <= epsilon and exact > 0.999 * epsilon


@pytest.mark.parametrize(('fields', 'field'), [
    ({'g_pate__teachers': 41}, r'config\.g_pate\.teachers: is 41, for 40'),
    ({'datalens__top_k': 65}, r'config\.datalens\.top_k: is 65, of 64 places'),
    ({'g_pate__agreement': True}, r'config\.g_pate\.agreement: is True'),
])  # fmt: skip
def test_what_does_not_fit_is_refused(fields, field):
    with pytest.raises(UserError, match=field):
        datalens.plan(settings(data__image_size=8, **fields), 40)


# --- what one teacher can do ----------------------------------------------------------


@pytest.mark.parametrize('values', [
    np.random.default_rng(0).normal(size=(3, 40)),
    np.zeros((3, 40)),
    np.full((3, 40), np.nan),
    np.where(np.arange(120).reshape(3, 40) % 7 == 0, np.inf, -np.inf),
    np.full((3, 40), 1e-45),
], ids=['normal', 'zero', 'nan', 'infinite', 'denormal'])  # fmt: skip
@pytest.mark.parametrize('k', [1, 7, 40])
def test_an_answer_has_exactly_k_signs_whatever_the_gradient(values, k):
    signs = np.asarray(jax.jit(top_signs, static_argnums=1)(np.float32(values), k))
    assert set(np.unique(signs)) <= {-1.0, 0.0, 1.0}
    assert np.all(np.sum(np.abs(signs), axis=1) == k)


def test_the_largest_are_signed():
    values = jnp.array([[0.1, -3.0, 0.5, 2.0], [5.0, 4.0, -6.0, 0.0]])
    expected = [[0, -1, 0, 1], [1, 0, -1, 0]]
    np.testing.assert_array_equal(top_signs(values, 2), expected)


def answers(lens, images, state=None):
    """[m, ...] exact sums of one step, whose teachers see these records."""
    state = state or jax.device_get(jax.jit(lens.init)(jax.random.key(0)))
    batch = audit.canaries.batch(images, lens.config.data, (8, 3))
    released = audit._releaser(lens, 1)(state, batch, np.zeros((1, 8), np.uint32))
    return released.reshape(6, -1)


def test_one_record_moves_the_sums_of_a_step_by_at_most_the_bound():
    lens = lens_of(0.0)
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(24, *lens.config.data.shape), dtype=np.uint8)
    moved = images.copy()
    moved[4] = 255 - moved[4]
    one, other = answers(lens, images), answers(lens, moved)
    assert np.all(one == np.round(one)) and np.all(np.abs(one) <= 8)
    apart = np.linalg.norm(one - other, axis=1)
    assert apart.max() <= lens.mechanism.l2_sensitivity
    assert apart.max() > 0  # the record is seen


@pytest.mark.parametrize('kind', [GPate, DataLens])
def test_what_lies_in_an_empty_slot_reaches_no_teacher(kind):
    config = tiny.config(method='g_pate' if kind is GPate else 'datalens')
    empty, wild = with_empty_slots(kind(config, tiny.plan(config)))
    same = jax.tree.map(np.array_equal, empty, wild)
    assert all(jax.tree.leaves(same))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(wild))


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_faults():
    assert not audited('datalens')

    with mock.patch.object(DataLens, 'query', mixed(DataLens.query)):
        assert 'sensitivity' in audited('datalens')
    with mock.patch.object(
        voting, 'noisy_total', lambda sums, key, std: noisy_total(sums, key, std / 2)
    ):
        assert 'noise level' in audited('datalens')


# --- the student ----------------------------------------------------------------------


def test_fakes_move_where_enough_teachers_agree_and_nowhere_else():
    lens = lens_of(g_pate__teachers=8, datalens__threshold=0.5, datalens__step_size=0.2)
    images = jnp.zeros((1, *lens.config.data.shape))
    released = np.zeros((1, math.prod(coarse_shape(lens.config))), np.float32)
    released[0, :4] = 4.0, -4.0, 3.9, -3.9
    moves, agree = lens.moves(Fakes(None, None, images, None), jnp.asarray(released))
    assert np.flatnonzero(agree).tolist() == [0, 1]
    flat = np.ravel(moves)
    np.testing.assert_allclose(flat[:4], [0.2, -0.2, 0, 0], atol=1e-6)
    assert not flat[4:].any()


def test_a_cell_is_one_place():
    lens = lens_of(data__image_size=16, g_pate__cell=2)
    assert coarse_shape(lens.config)[:2] == (8, 8)
    images = jnp.zeros((1, *lens.config.data.shape))
    moves, _ = lens.moves(Fakes(None, None, images, None), jnp.full((1, 64), 99.0))
    assert moves.shape == images.shape
    np.testing.assert_allclose(moves, lens.config.datalens.step_size, rtol=1e-6)


def test_sums_are_the_same_on_one_device_and_on_eight():
    lens = lens_of(0.0)
    fakes = parallel.pmapped(
        lambda signs: lens.release(signs, jnp.zeros(8, jnp.uint32)),
        jax.local_devices()[:8],
    )
    signs = np.random.default_rng(0).integers(-1, 2, (8, 6, 9)).astype(np.float32)
    eight = parallel.unreplicate(fakes(signs[:, None]))
    np.testing.assert_array_equal(eight, signs.sum(axis=0))


@pytest.mark.slow
def test_a_release_verifies(tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    small = {
        'teachers': 4, 'batch_size': 2, 'width': 4, 'fc_width': 4, 'steps': 2,
        'fakes': 4, 'cell': 1,
    }  # fmt: skip
    made = tiny_runs.one_shot(
        source, method='datalens', **{f'g_pate__{n}': v for n, v in small.items()}
    )
    pipeline = Pipeline(made, tmp_path / 'run', entropy=tiny_runs.ENTROPY)
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
    images, _ = load_release(tmp_path / 'run' / 'release').sample(10, seed=0)
    assert images.shape == (10, 8, 8, 1)
    checks = verify(tmp_path / 'run' / 'release').checks
    assert all(check.passed is not False for check in checks), checks


def test_no_goal_lies_beyond_what_an_image_can_be():
    """Or students would end in black, where nothing learns."""

    def after(step_size):
        lens = lens_of(datalens__threshold=0.0, datalens__step_size=step_size)
        places = math.prod(coarse_shape(lens.config))

        @jax.jit
        def norm(key):
            state = lens.init(key)
            fakes = lens.fakes(state.generator.params, key)
            down = jnp.full((len(fakes.images), places), -99.0)
            return lens.learn(state, fakes, down)[1]['student_gradient_norm']

        return float(norm(jax.random.key(0)))

    assert after(2.0) == pytest.approx(after(100.0), rel=1e-6)
    assert after(0.5) != pytest.approx(after(2.0), rel=1e-2)
