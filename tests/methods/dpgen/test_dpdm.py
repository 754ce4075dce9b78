"""DPDM: log-normal levels by a record's own coins, and EDM's levels down to an image."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs

from dpaf_jax.audit.harness import wild_state
from dpaf_jax.audit.methods import dpgen as audit
from dpaf_jax.audit.target import Scene
from dpaf_jax.config import public_dict
from dpaf_jax.methods.dpgen import dpdm
from dpaf_jax.methods.dpgen.score_matching import ScoreMatching
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.bundle import load_release
from dpaf_jax.release.samplers.dpdm import dpdm_sampler
from dpaf_jax.release.samplers.dpgen import heun
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.verify.verification import verify

UNITS, CLIP = 8, 0.5
COINS = np.arange(4, dtype=np.uint32)


def config(**fields):
    return tiny.config(method='dpdm', dpgen__l2_clip_norm=CLIP, **fields)


def make(kind=dpdm.EdmMatching, **fields):
    typed = config(**fields)
    return kind(dpdm_sampler(typed), typed, tiny.plan(typed))


def batch():
    images = np.random.default_rng(3).integers(256, size=(UNITS, 8, 8, 1))
    labels = np.arange(UNITS, dtype=np.int32) % 3
    return tiny.batch(images.astype(np.uint8), labels)


# --- the plan -------------------------------------------------------------------------


def test_the_plan_is_dpgens_and_the_same_as_published():
    (m,) = dpdm.plan(config(), 40).mechanisms
    assert (m.name, m.sampling_prob, m.l2_sensitivity) == ('score', 0.2, CLIP)
    as_dpgen = dataclasses.replace(config(), method='dpgen')
    ours, theirs = (
        tiny.plan(config(privacy__guarantee=mode))
        for mode in ('certified', 'as_published')
    )
    assert ours == theirs == tiny.plan(as_dpgen) and ours.guarantee == CERTIFIED


@pytest.mark.parametrize(('fields', 'field'), [
    ({'dpgen__sampler': 'langevin'}, 'config.dpgen.sampler'),
    ({'dpgen__warm_start': 'npz:/x.npz'}, 'config.dpgen.warm_start'),
])  # fmt: skip
def test_what_it_does_not_know_is_refused(fields, field):
    with pytest.raises(UserError, match=field.replace('.', r'\.')):
        dpdm.plan(config(**fields), 40)


def test_a_release_has_its_fields_and_dpgens():
    shown = public_dict(config())
    assert {'dpdm', 'dpgen'} < set(shown) and 'feta' not in shown


# --- training -------------------------------------------------------------------------


def test_levels_are_log_normal_and_a_records_own():
    matching = make(dpgen__multiplicity=2000, dpdm__p_mean=0.5, dpdm__p_std=0.7)
    draw = jax.jit(matching.shots)
    sigma = np.asarray(draw(batch(), COINS).sigma)
    logs = np.log(sigma)
    assert logs.mean() == pytest.approx(0.5, abs=0.03)
    assert logs.std() == pytest.approx(0.7, abs=0.03)
    assert len(np.unique(sigma)) > 0.9 * sigma.size
    turned = jax.tree.map(lambda leaf: np.roll(leaf, 3, axis=0), batch())
    np.testing.assert_array_equal(draw(turned, COINS).sigma, np.roll(sigma, 3, axis=0))
    assert not np.any(draw(batch(), COINS + 1).sigma == sigma)


def furthest(matching):
    """How far leaving out a record moves the sum, on states of many sizes."""
    shapes = jax.eval_shape(matching.init, jax.random.key(0))
    query = tiny.over_devices(
        lambda state, b: matching.query(state.params, matching.shots(b, COINS)), 1
    )

    def summed(state, b):
        return tiny.vector(jax.tree.map(lambda x: x[0], query(*on_one((state, b)))))

    far = []
    for seed in range(3):
        state = wild_state(shapes, ['params'], seed)
        scene, whole = Scene(state, batch()), summed(state, batch())
        for place in scene.places:
            rests = scene.without(place), scene.removed(place)
            far += [np.linalg.norm(whole - summed(state, r.batch)) for r in rests]
    return max(far)


def on_one(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)


class OfSlots(dpdm.EdmMatching):
    """The planted fault: levels of a slot, whoever lies in it."""

    def shots(self, batch, key_data):
        slots = jnp.arange(len(batch.index), dtype=jnp.int32)[:, None]
        return super().shots(batch._replace(index=slots), key_data)


def test_one_record_moves_the_sum_by_at_most_c():
    assert 0.9 * CLIP < furthest(make()) <= CLIP
    assert furthest(make(OfSlots)) > 1.2 * CLIP


# --- sampling -------------------------------------------------------------------------


def test_levels_go_down_evenly_in_their_rho_th_root():
    small = {'dpgen__sigma_max': 80.0, 'dpgen__sigma_min': 0.002}
    sampler = dpdm_sampler(config(dpgen__num_levels=18, **small))
    levels = np.array(sampler.levels)
    assert levels[[0, -1]] == pytest.approx([80.0, 0.002])
    assert np.ptp(np.diff(levels ** (1 / 7))) < 1e-9
    even = dpdm_sampler(config(dpgen__num_levels=3, dpdm__rho=1.0, **small)).levels
    assert even[1] == pytest.approx(40.001)


@pytest.mark.parametrize('churn', [0.0, 30.0])
def test_with_and_without_churn_the_flow_ends_at_the_data(churn):
    """Of images that are N(0.5, 0.3^2) the best denoiser is known."""

    def denoise(x, sigma):
        return (0.09 * x + sigma**2 * 0.5) / (0.09 + sigma**2)

    levels = dpdm_sampler(config(dpgen__num_levels=60, dpgen__sigma_min=0.01)).levels
    start = levels[0] * jax.random.normal(jax.random.key(0), (20_000, 1))
    ends = [
        np.asarray(heun(denoise, start, levels, churn, jax.random.key(i)))
        for i in (1, 2)
    ]
    assert ends[0].mean() == pytest.approx(0.5, abs=0.03)
    assert ends[0].std() == pytest.approx(0.3, abs=0.02)
    assert np.array_equal(*ends) == (churn == 0)


# --- whole runs -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_releases_verifies_and_samples(tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    few = {'dpgen__scales': 1, 'dpgen__steps': 3, 'dpdm__churn': 2.0}
    made = tiny_runs.one_shot(source, method='dpdm', **few)
    pipeline = Pipeline(made, tmp_path / 'run', entropy=tiny_runs.ENTROPY)
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
    checks = verify(tmp_path / 'run' / 'release').checks
    assert all(check.passed is not False for check in checks), checks
    images, labels = load_release(tmp_path / 'run' / 'release').sample(6, seed=0)
    assert images.shape == (6, 8, 8, 1) and set(labels) <= {0, 1}


@pytest.mark.parametrize('argument', ['digits', 'mnist', 'celeba32:gender'])
def test_the_config_loads(argument):
    loaded = tiny.from_config_dict(tiny_runs.load_config('dpdm', argument))
    assert loaded.method == 'dpdm' and loaded.dpgen.guidance == 1


def test_the_audit_runs_its_own_levels():
    typed = config()
    plan = tiny.plan(typed)
    assert isinstance(audit._matching(typed, plan), dpdm.EdmMatching)
    other = dataclasses.replace(typed, method='dpgen')
    assert type(audit._matching(other, plan)) is ScoreMatching


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_levels_of_slots(monkeypatch):
    def failures():
        typed = config()
        plan = tiny.plan(typed)
        (target,) = audit.audit_targets(typed, plan, (1,))
        return tiny.audit_failures(target, plan)

    monkeypatch.setattr(audit, 'STATES', 3)
    assert not failures()
    monkeypatch.setattr(
        dpdm, 'make_matching', lambda c, p: OfSlots(dpdm_sampler(c), c, p)
    )
    assert 'sensitivity' in failures()
