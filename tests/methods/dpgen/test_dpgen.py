"""DPGEN: what its training releases, its plan, and the published sanitiser."""

import dataclasses
import functools
import json
import math

import dp_accounting
import jax
import numpy as np
import pytest
import tiny
import tiny_runs
from dp_accounting import pld

from dpaf_jax.audit.methods import dpgen as dpgen_audit
from dpaf_jax.audit.target import Scene
from dpaf_jax.methods import dpgen
from dpaf_jax.methods.dpgen import score_matching
from dpaf_jax.methods.dpgen.phase import ScorePhase
from dpaf_jax.methods.dpgen.randomised_response import keep_probability, sanitise
from dpaf_jax.methods.dpgen.score_matching import make_score_matching
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy import grid
from dpaf_jax.privacy.noise import noisy_mean
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.signals import Interrupted, StopRequest
from dpaf_jax.verify.verification import verify

UNITS = 8


def config(**fields):
    return tiny.config(method='dpgen', **fields)


def make(sigma=1.0, **fields):
    typed = config(**fields)
    return make_score_matching(typed, tiny.plan(typed, sigma))


def batch(number=UNITS):
    images = np.random.default_rng(3).integers(256, size=(number, 8, 8, 1))
    images[:3] = np.array([0, 255, 127])[:number, None, None, None]
    labels = np.arange(number, dtype=np.int32) % 3
    return tiny.batch(images.astype(np.uint8), labels)


def deal(tree, number):
    return jax.tree.map(lambda x: np.stack(np.split(np.asarray(x), number)), tree)


# --- sensitivity, noise, sums -----------------------------------------------------------


def moves(matching, number):
    """How far leaving one image out moves the sum over `number` devices."""
    devices = jax.local_devices()[:number]
    query = tiny.over_devices(matching.query, number)
    make_shots, far = jax.jit(matching.shots), []
    for scale in (0.3, 3.0):
        params = parallel.replicate(tiny.state(matching, 1, scale).params, devices)

        def summed(scene, params=params):
            shots = make_shots(scene.batch, np.arange(4, dtype=np.uint32))
            return tiny.vector(parallel.unreplicate(query(params, deal(shots, number))))

        scene = Scene(None, batch())
        whole = summed(scene)
        for place in scene.places:
            for other in (scene.without(place), scene.removed(place)):
                far.append(np.linalg.norm(whole - summed(other)))
    return np.array(far)


@pytest.mark.parametrize('number', [pytest.param(1, marks=pytest.mark.slow), 8])
def test_one_image_moves_the_sum_by_at_most_c_whatever_the_multiplicity(number):
    matching = make(dpgen__l2_clip_norm=0.02, dpgen__multiplicity=3)
    assert matching.mechanism.l2_sensitivity == 0.02
    far = moves(matching, number)
    assert far.max() <= 0.02  # in exact arithmetic: nothing to allow for
    assert far.max() > 0.9 * 0.02
    free = dataclasses.replace(matching.mechanism, l2_sensitivity=math.inf)
    unclipped = dataclasses.replace(matching.plan, mechanisms=(free,))
    if number == 8:
        found = moves(dataclasses.replace(matching, plan=unclipped), number)
        assert found.max() > 0.02


@pytest.mark.slow
def test_a_clip_of_each_draw_on_its_own_would_be_seen():
    # Draws as images of their own: the planted fault of multiplicity outside the clip.
    matching = make(dpgen__l2_clip_norm=1e-3, dpgen__multiplicity=2)
    params = tiny.state(matching, 1, 0.3).params
    shots = matching.shots(batch(1), np.arange(4, dtype=np.uint32))
    apart = shots._replace(
        clean=np.repeat(shots.clean, 2, axis=0), is_padding_example=np.zeros(2, bool),
        **{n: np.swapaxes(getattr(shots, n), 0, 1) for n in ('sigma', 'noise', 'labels')},
    )  # fmt: skip
    query = jax.jit(matching.query)
    norms = [np.linalg.norm(tiny.vector(query(params, s))) for s in (shots, apart)]
    assert norms[0] <= 1e-3 < norms[1]


@pytest.mark.slow
def test_microbatches_and_devices_add_up_exactly():
    matching = make()
    params = tiny.state(matching, 2, 1.0).params
    shots = jax.jit(matching.shots)(batch(), np.arange(4, dtype=np.uint32))
    query = jax.jit(matching.query)
    whole = tiny.vector(query(params, shots))
    parts = [jax.tree.map(lambda x, i=i: x[i : i + 2], shots) for i in range(0, 8, 2)]
    sums = [query(params, part) for part in parts]
    added = functools.reduce(lambda a, b: a + b, sums)
    # An image's gradient may be computed in another order; the sum of them may not.
    np.testing.assert_allclose(tiny.vector(added), whole, atol=1e-4)
    turned = functools.reduce(lambda a, b: a + b, sums[::-1])
    np.testing.assert_array_equal(tiny.vector(turned), tiny.vector(added))


@pytest.mark.slow
def test_a_microbatch_of_one_image_adds_up_whatever_their_number(tmp_path, monkeypatch):
    """In miniature: with so few bits above `low`, 16 parts are as 65 538 are else."""
    fields = {
        'dpgen__batch_size': 0,
        'dpgen__microbatch': 1,
        'dpgen__l2_clip_norm': 50.0,
    }

    def norm_of_a_step():
        run = tiny.run(tmp_path, config(**fields))
        phase = ScorePhase(run, make_score_matching(run.config, run.plan))
        state = parallel.replicate(phase.init(), run.devices)
        _, _, metrics = phase.window(state, 0)
        return float(np.ravel(metrics['noisy_gradient_norm'])[0])

    expected = norm_of_a_step()
    monkeypatch.setattr(grid, 'LOW_BITS', 28)
    assert norm_of_a_step() == pytest.approx(expected, rel=1e-4)


def audit_failures(matching):
    target = dpgen_audit.audit_targets(matching.config, matching.plan, (1, 8))[0]
    target = dataclasses.replace(target, scenes=target.scenes[:3])
    return tiny.audit_failures(target, matching.plan)


@pytest.fixture
def quick_audit(monkeypatch):
    monkeypatch.setattr(dpgen_audit, 'STATES', 3)


@pytest.mark.slow
def test_the_audit_finds_nothing(quick_audit):
    assert not audit_failures(make())


@pytest.mark.slow
@pytest.mark.parametrize('factor', [2 / 3, 1.5])
def test_the_audit_finds_another_noise_level(quick_audit, factor, monkeypatch):
    def wrong(sums, key, mechanism):
        sigma = factor * mechanism.noise_multiplier
        return noisy_mean(
            sums, key, dataclasses.replace(mechanism, noise_multiplier=sigma)
        )

    monkeypatch.setattr(score_matching, 'noisy_mean', wrong)
    assert 'noise level' in audit_failures(make())


def test_the_trace_has_a_fresh_draw_and_key_for_each_step():
    typed = config(dpgen__steps=30)
    trace = dpgen_audit.trace(typed, tiny.plan(typed), tiny.keys())
    sizes = [len(c) for c in trace.draws['score'].chosen]
    assert len(sizes) == 30 and np.mean(sizes) == pytest.approx(8, abs=3)
    assert len(np.unique(trace.keys['score'], axis=0)) == 30


def test_levels_noises_and_dropped_labels_are_as_said():
    matching = make(dpgen__label_dropout=0.25, dpgen__multiplicity=64)
    draw = jax.jit(matching.shots)
    shots = draw(batch(), np.arange(4, dtype=np.uint32))
    assert shots.sigma.shape == shots.labels.shape == (UNITS, 64)
    assert len(np.unique(shots.sigma)) == 3
    assert np.mean(shots.labels < 0) == pytest.approx(0.25, abs=0.1)
    assert np.std(shots.noise) == pytest.approx(1, abs=0.03)
    known = np.asarray(shots.labels)
    assert np.all((known == np.arange(UNITS)[:, None] % 3) | (known == -1))
    other = draw(batch(), np.arange(1, 5, dtype=np.uint32))
    assert np.mean(other.noise == shots.noise) < 0.01


# --- the plan ---------------------------------------------------------------------------


def test_epsilon_is_that_of_the_sampled_gaussian_and_all_of_it_is_spent():
    typed = config(privacy__epsilon=2.0, dpgen__steps=50)
    with tiny_runs.accounting_grid(5e-4):
        made = dpgen.plan(typed, 1000)
    (m,) = made.mechanisms
    assert (m.sampling_prob, m.steps, m.expected_batch_size) == (0.008, 50, 8.0)
    accountant = pld.PLDAccountant(
        dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
        value_discretization_interval=5e-4,
    )
    once = dp_accounting.PoissonSampledDpEvent(
        0.008, dp_accounting.GaussianDpEvent(m.noise_multiplier)
    )
    accountant.compose(dp_accounting.SelfComposedDpEvent(once, 50))
    expected = accountant.get_epsilon(made.delta - made.overflow_delta)
    assert made.epsilon == pytest.approx(expected, abs=1e-3)
    assert 1.98 < made.epsilon <= 2.0
    assert 0 < made.overflow_delta <= 0.01 * made.delta


def test_multiplicity_network_and_sampler_cost_nothing():
    plans = [
        tiny.plan(config(**fields))
        for fields in (
            {},
            {'dpgen__multiplicity': 9, 'dpgen__width': 3, 'dpgen__sampler': 'langevin'},
        )
    ]
    assert plans[0] == plans[1]


def test_all_images_at_once_are_no_sample():
    (m,) = tiny.plan(config(dpgen__batch_size=0)).mechanisms
    assert (m.sampling_prob, m.capacity, m.expected_batch_size) == (1.0, 40, 40.0)


@pytest.mark.parametrize(('fields', 'problem'), [
    ({'dpgen__batch_size': 41}, r'batch_size: asks for 41 images a step of only 40'),
    ({'dpgen__sigma_min': 10.0}, r'sigma_min: is 10\.0, not below'),
    ({'dpgen__guidance': 2.0, 'dpgen__label_dropout': 0.0}, r'guidance: is 2\.0'),
    ({'dpgen__scales': 4}, r'scales: is 4'),
    ({'dpgen__candidates': 41, 'privacy__guarantee': 'as_published'},
     r'candidates: is 41'),
])  # fmt: skip
def test_what_does_not_fit_is_refused(fields, problem):
    with pytest.raises(UserError, match=r'config\.dpgen\.' + problem):
        dpgen.plan(config(**fields), 40)


def test_candidates_are_of_the_published_sanitiser_alone():
    made = dpgen.plan(config(dpgen__candidates=41), 40)
    assert made.guarantee == 'certified'


def test_as_published_claims_what_the_theorem_says_and_certifies_nothing():
    made = dpgen.plan(
        config(privacy__guarantee='as_published', privacy__epsilon=5.0), 40
    )
    assert (made.claimed_epsilon, made.epsilon, made.epsilon_rdp) == (5.0, None, None)
    assert made.guarantee.startswith('none (as published: randomised response')
    assert made.to_json()['dp_event'] == {'class': 'NonPrivateDpEvent'}


# --- the published sanitiser ------------------------------------------------------------


def sanitised(epsilon, number=300, threshold=0.0, candidates=5, levels=(1.0, 0.1)):
    images = np.random.default_rng(0).uniform(-1, 1, (number, 4, 4, 1))
    images = images.astype(np.float32)
    rng = np.random.default_rng(1)
    return images, sanitise(images, levels, epsilon, candidates, threshold, rng)


@pytest.mark.parametrize(('epsilon', 'prob'), [(0.0, 0.2), (1.0, 0.405), (5.0, 0.974)])
def test_an_image_answers_with_itself_as_often_as_equation_8_says(epsilon, prob):
    assert keep_probability(epsilon, 5) == pytest.approx(prob, abs=1e-3)
    images, made = sanitised(epsilon)
    own = np.abs(made.recovered() - images).max(axis=(1, 2, 3)) < 1e-4
    assert np.mean(own) == pytest.approx(prob, abs=0.09)


def test_every_pair_gives_away_a_private_image():
    images, made = sanitised(1.0)
    far = np.abs(made.recovered()[:, None] - images[None]).max(axis=(2, 3, 4))
    assert np.all(far.min(axis=1) < 1e-4)
    assert len(np.unique(far.argmin(axis=1))) > 100


def test_candidates_are_within_the_threshold_where_so_many_are():
    images, made = sanitised(0.0, threshold=2.0, candidates=4)
    far = np.abs(made.recovered()[:, None] - images[None]).max(axis=(2, 3, 4))
    answer = far.argmin(axis=1)
    sigma = made.sigma[answer, None, None, None]
    measure = np.max((made.noisy - images[answer]) / sigma, axis=(1, 2, 3))
    other = answer != np.arange(len(images))
    # sigma = 0.1 seldom has a neighbour; sigma = 1 has plenty.
    assert np.mean(measure[other] <= 2.0) > 0.5
    far_away = sanitised(0.0, threshold=1e9, candidates=4)[1]
    assert not np.array_equal(far_away.recovered(), made.recovered())


# --- whole runs -------------------------------------------------------------------------


def run_config(source, **fields):
    small = {'dpgen__scales': 1, 'dpgen__steps': 3} | fields
    return tiny_runs.one_shot(source, method='dpgen', **small)


def run_stages(config_dict, workdir, *stages, stop=None):
    pipeline = Pipeline(config_dict, workdir, stop=stop, entropy=tiny_runs.ENTROPY)
    for stage in stages or pipeline.stages():
        pipeline.run(stage)


@pytest.mark.slow
@pytest.mark.parametrize('guarantee', ['certified', 'as_published'])
def test_a_run_from_start_to_report(tmp_path, guarantee):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    made = run_config(source, privacy__guarantee=guarantee)
    done = tiny_runs.call_main(
        '--config=configs/digits.py', f'--workdir={tmp_path / "run"}',
        *tiny_runs.flags_of(made, tiny_runs.load_config('digits')),
    )  # fmt: skip
    assert done.code == 0, done.err
    report = json.loads((tmp_path / 'run' / 'report.json').read_text())
    assert report['method'] == 'dpgen'
    phases = {'score', 'labeller'} if guarantee == 'as_published' else {'score'}
    assert {row['phase'] for row in report['history']} == phases
    assert set(report['config']) & {'dpaf', 'dpgen'} == {'dpgen'}
    page = (tmp_path / 'run' / 'report.html').read_text()
    card = (tmp_path / 'run' / 'release' / 'README.md').read_text()
    if guarantee == 'certified':
        assert '✓ certified' in page and 'certified' in card
    else:
        assert 'claimed ε = 10, certified ε: none' in page
        assert 'private images' in report['privacy']['guarantee']
        assert 'no epsilon covers it' in card
    checks = verify(tmp_path / 'run' / 'release').checks
    assert all(check.passed is not False for check in checks), checks


@pytest.mark.slow
@pytest.mark.parametrize(
    ('guarantee', 'phase'),
    [('certified', 'score'), ('as_published', 'score'), ('as_published', 'labeller')],
)
def test_a_stop_and_a_resume_change_no_bit(tmp_path, guarantee, phase):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    made = run_config(source, privacy__guarantee=guarantee)
    stages = ('prepare', 'plan', 'train')
    run_stages(made, tmp_path / 'whole', *stages, 'release')
    stop = StopRequest()
    with tiny_runs.stop_at(stop, phase, 1), pytest.raises(Interrupted):
        run_stages(made, tmp_path / 'cut', *stages, stop=stop)
    run_stages(made, tmp_path / 'cut', *stages, 'release')
    whole, cut = (
        (tmp_path / name / 'release' / 'generator.safetensors').read_bytes()
        for name in ('whole', 'cut')
    )
    assert whole == cut


@pytest.mark.parametrize('argument', ['', 'mnist', 'fashion_mnist'])
def test_the_config_loads_and_plans(argument):
    loaded = tiny_runs.load_config('dpgen', argument)
    assert loaded.method == 'dpgen'
    assert set(loaded.dpgen) == set(tiny_runs.load_config('default').dpgen)
    made = tiny.from_config_dict(loaded)
    plan = dpgen.plan(made, made.data.num_examples)
    assert 9.9 < plan.epsilon <= 10.0


def test_an_unknown_argument_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="'nonsense'.* Choose .*mnist"):
        tiny_runs.load_config('dpgen', 'nonsense')
