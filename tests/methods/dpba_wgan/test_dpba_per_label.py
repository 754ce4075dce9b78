"""DPBA-WGAN with a model for each label: turns, what one class is charged, and samples."""

import contextlib
import dataclasses
import json
from unittest import mock

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs
from adversaries import deal, moves, states_of, unclipped

from dpaf_jax.audit.methods import adversarial as auditing
from dpaf_jax.audit.methods import dpba_wgan as dpba_wgan_audit
from dpaf_jax.methods import dpba_wgan
from dpaf_jax.methods.adversarial.phase import AdversarialPhase
from dpaf_jax.methods.dpba_wgan import critic
from dpaf_jax.methods.dpba_wgan.critic import DpbaWgan, stacked
from dpaf_jax.methods.dpba_wgan.plan import scale_of_step
from dpaf_jax.methods.dpba_wgan.train import make_method
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.grid import LOW_BITS
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.release.bundle import load_release
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.release.samplers.registry import make_sampler
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.signals import Interrupted, StopRequest
from dpaf_jax.verify.verification import verify

CLASSES = 3
SMALL = {
    'method': 'dpba_wgan',
    'dpba_wgan__per_label': True,
    'dpba_wgan__l2_clip_norm': 0.02,
    'dpba_wgan__discriminator_steps': 2,
    'dpba_wgan__generator_steps': 6,
}


def settings(**fields):
    return tiny.config(**{**SMALL, **fields})


def method_of(number=1, **fields):
    config = settings(**fields)
    return make_method(config, tiny.plan(config), number)


# --- the plan -------------------------------------------------------------------------


def test_the_steps_of_one_class_are_charged_at_k_times_the_rate():
    plan = dpba_wgan.plan(settings(dpba_wgan__generator_steps=15), 40)
    scale = scale_of_step(method_of(dpba_wgan__generator_steps=15).settings, 3)
    assert len(scale) == 15 // 3 * 2 == sum(m.steps for m in plan.mechanisms)
    assert {m.sampling_prob for m in plan.mechanisms} == {3 * 8 / 40}
    assert {m.expected_batch_size for m in plan.mechanisms} == {8.0}
    events = [
        dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(
                0.6, dp_accounting.GaussianDpEvent(m.noise_multiplier)
            ),
            int(np.sum(scale == i)),
        )
        for i, m in enumerate(plan.mechanisms)
    ]
    spent = accounting.epsilon_pld(
        dp_accounting.ComposedDpEvent(events), plan.delta - plan.overflow_delta
    )
    assert plan.guarantee == CERTIFIED and 0.99 * 10 < spent <= plan.epsilon <= 10


def test_a_class_is_taken_whole_where_it_has_fewer_than_a_batch():
    for m in tiny.plan(settings(dpba_wgan__batch_size=20)).mechanisms:
        assert m.sampling_prob == 1.0 and m.capacity == 40
        assert m.expected_batch_size == 40 / 3


def test_what_is_charged_is_what_the_class_ahead_has_had_of_each_scale():
    method = method_of(dpba_wgan__generator_steps=30)
    seen = np.zeros((CLASSES, len(method.plan.mechanisms)), int)
    for step in range(60):
        assert list(method.charged(step).values()) == seen.max(axis=0).tolist()
        place = method.plan.mechanisms.index(method.mechanism_at(step))
        seen[method.schedule.label(step), place] += 1
    # The scales were drawn once for all: no class has more of any than is charged.
    assert np.all(seen == [m.steps for m in method.plan.mechanisms])


def test_steps_that_classes_cannot_share_are_refused():
    with pytest.raises(UserError, match='generator_steps: is 7, which 3 models cannot'):
        dpba_wgan.plan(settings(dpba_wgan__generator_steps=7), 40)


# --- who takes part -------------------------------------------------------------------


def participations(method):
    """[N, steps]: which records each step of a run draws."""
    labels, steps = tiny.dataset(method.config).labels, 12
    drawn = np.zeros((len(labels), steps), bool)
    for step in range(steps):
        there = method.eligible(labels, step)
        draw = method.draw(tiny.keys(), there, step)
        drawn[draw.indices[~draw.is_padding_example], step] = True
    return drawn


def outside_their_turns(method):
    """How many draws a record is in while another class has its turn."""
    turn = np.arange(12) // 2 % CLASSES
    labels = tiny.dataset(method.config).labels
    return np.sum(participations(method) & (labels[:, None] != turn))


def test_a_record_takes_part_in_the_turns_of_its_class_alone():
    method = method_of()
    assert not outside_their_turns(method)
    everybody = mock.patch.object(
        DpbaWgan, 'eligible', lambda self, labels, step: np.arange(len(labels))
    )
    with everybody:  # the planted fault
        assert outside_their_turns(method) > 0


def test_no_record_is_in_more_steps_than_are_charged():
    drawn = participations(method_of(dpba_wgan__batch_size=14))  # q = 1
    charged = sum(m.steps for m in method_of().plan.mechanisms)
    assert np.all(drawn.sum(axis=1) == charged) and charged == 4


@pytest.mark.slow
@pytest.mark.parametrize('number', [1, 8])
def test_one_record_moves_the_sum_by_at_most_the_clip_bound(number):
    far = moves(method_of(number), number)
    assert 0.9 * 0.02 < far.max() <= 0.02


@pytest.mark.parametrize(  # 8 columns, or one
    'depth', [1, pytest.param(critic.DEPTH, marks=pytest.mark.slow)]
)
def test_chunks_add_up_to_the_sum_and_their_number_moves_no_integer(depth, monkeypatch):
    """Of 90 slots 50 are taken, or 11, or 39."""
    monkeypatch.setattr(critic, 'DEPTH', depth)
    method = method_of()
    state = method.adversaries.own(states_of(method)[1])
    rng, number = np.random.default_rng(4), 90
    images = rng.integers(256, size=(number, 8, 8, 1), dtype=np.uint8)
    batch = tiny.batch(images, np.zeros(number, np.int32))
    key = np.arange(4, dtype=np.uint32)
    fns = [
        tiny.over_devices(lambda batch, query=query: query(state, batch, key), 1)
        for query in (method.query, method._query)
    ]

    def summed(there, fn):
        batch.is_padding_example[:, 0] = ~np.isin(np.arange(number), there)
        return tiny.vector(parallel.unreplicate(fn(deal(batch, 1))))

    order = rng.permutation(number)
    some, more = order[:11], order[11:50]
    chunks, whole = (summed(order[:50], fn) for fn in fns)
    np.testing.assert_allclose(chunks, whole, atol=1e-5)
    assert np.linalg.norm(whole) > 0.1
    # Integers: the sum of two parts is that of all, to the last bit.
    parts = summed(some, fns[0]) + summed(more, fns[0])
    np.testing.assert_array_equal(parts, chunks)
    assert not summed([], fns[0]).any()
    # Carried after each chunk: what is not overflows after 2^16 of them.
    batch.is_padding_example[:] = False
    for low in jax.tree.leaves(fns[0](deal(batch, 1)).low):
        assert low.min() >= 0 and low.max() < 2**LOW_BITS


def chunk_slots(drawn, length):
    """By record that is there: its slot in its chunk."""
    where, heights = stacked(jnp.asarray(drawn), length)
    chunks, columns = np.nonzero(np.arange(len(where))[:, None] < heights)
    return dict(zip(np.asarray(where)[chunks, columns].tolist(), columns, strict=True))


@pytest.mark.parametrize('length', [1, 4, 7, 20])
def test_nobody_moves_anybody_to_another_slot_of_a_chunk(length):
    drawn = np.random.default_rng(0).random(20) < 0.6
    everybody = chunk_slots(drawn, length)
    assert set(everybody) == set(np.flatnonzero(drawn))
    for gone in everybody:
        fewer = drawn & (np.arange(20) != gone)
        others = {k: v for k, v in everybody.items() if k != gone}
        assert chunk_slots(fewer, length) == others


@pytest.mark.slow
def test_a_critic_that_does_not_clip_is_found_out():
    assert moves(unclipped(method_of()), 1).max() > 0.04


# --- training -------------------------------------------------------------------------


@pytest.mark.slow
def test_only_the_model_in_turn_learns(tmp_path):
    run = tiny.run(tmp_path, settings(dpba_wgan__discriminator_steps=1))
    phase = AdversarialPhase(run, DpbaWgan(run.config, run.plan, 1))
    before = phase.init()
    placed = parallel.replicate(before, run.devices)
    for turn in range(phase.total_steps):
        placed, step, _ = phase.window(placed, turn)
        after = parallel.unreplicate(placed)
        changed = changed_models(before, after)
        assert changed == {turn % CLASSES} and step == turn + 1
        before = after
    assert after.generator.steps.tolist() == [2, 2, 2]
    apart = jax.tree.leaves(after.generator.ema_params)[0]
    assert not np.array_equal(apart[0], apart[1])


def changed_models(before, after):
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return {k for a, b in pairs for k in range(CLASSES) if np.any(a[k] != b[k])}


def test_an_image_is_of_its_labels_generator():
    config = settings()
    sampler, key = make_sampler(config), jax.random.key(1)
    params, labels = jax.jit(sampler.init)(key), np.array([2, 0, 1, 1, 0, 2])
    made = jax.jit(sampler.sample)(params, key, labels)
    one = jax.jit(latent_sampler(config).sample)
    for k in range(CLASSES):
        own = jax.tree.map(lambda leaf, k=k: leaf[k], params)
        alone = one(own, key, labels)
        here = labels == k
        np.testing.assert_allclose(made[here], alone[here], atol=1e-5)
        assert np.abs(made - alone)[~here].max() > 0.01


# --- as published ---------------------------------------------------------------------


def test_the_published_form_gives_each_class_its_own_epochs_and_claims():
    published = {'privacy__guarantee': 'as_published', 'dpba_wgan__batch_size': 6}
    method = method_of(**published)
    drawn, labels = participations(method), tiny.dataset(method.config).labels
    assert np.all(drawn.sum(axis=0) == 6) and not outside_their_turns(method)
    # 13 or 14 records of a class: two of its four batches are one epoch.
    assert np.all(drawn[labels == 1][:, 2:4].sum(axis=1) <= 1)
    (m,) = method.plan.mechanisms
    assert (m.steps, m.sampling_prob) == (4, 3 * 6 / 40)
    with pytest.raises(
        UserError, match='asks for 15 images a step: more than the model in turn has. L'
    ):
        participations(method_of(**published | {'dpba_wgan__batch_size': 15}))


# --- whole runs -----------------------------------------------------------------------


def run_config(source, **changes):
    small = {
        'method': 'dpba_wgan',
        'dpba_wgan__per_label': True,
        'dpba_wgan__batch_size': 4,
        'dpba_wgan__discriminator_steps': 2,
        'dpba_wgan__generator_steps': 4,
        'dpba_wgan__width': 2,
        'dpba_wgan__fc_width': 4,
        'dpba_wgan__generator_batch_size': 6,
    }
    return tiny_runs.one_shot(source, **small, **changes)


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp('whole')
    source = tiny_runs.write_npz(folder / 'images.npz')
    config, base = run_config(source), tiny_runs.load_config('digits')
    path = tiny_runs.ROOT / 'configs' / 'digits.py'
    flags = [f'--workdir={folder / "run"}', *tiny_runs.flags_of(config, base)]
    done = tiny_runs.call_main(f'--config={path}', *flags)
    assert (done.code, done.err) == (0, '')
    return folder / 'run'


@pytest.mark.slow
def test_one_command_trains_releases_evaluates_and_reports(workdir):
    report = json.loads((workdir / 'report.json').read_text())
    assert report['privacy']['guarantee'] == CERTIFIED
    assert report['config']['dpba_wgan']['per_label'] is True
    assert report['history'][-1]['step'] == 8
    assert verify(workdir / 'release').passed


@pytest.mark.slow
def test_a_release_has_a_generator_for_each_label(workdir):
    release = load_release(workdir / 'release')
    assert {len(leaf) for leaf in jax.tree.leaves(release.params)} == {2}
    silenced = jax.tree.map(lambda leaf: leaf * np.array([0, 1]).reshape(
        -1, *[1] * (leaf.ndim - 1)), release.params)  # fmt: skip
    labels = np.array([0, 1, 0, 1])
    (images,) = dataclasses.replace(release, params=silenced).generate(labels, seed=0)
    assert {len(np.unique(image)) == 1 for image in images[::2]} == {True}
    assert all(len(np.unique(image)) > 1 for image in images[1::2])


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_same_bits(tmp_path):
    config = run_config(tiny_runs.write_npz(tmp_path / 'images.npz'))

    def train(workdir, **more):
        pipeline = Pipeline(config, workdir, entropy=tiny_runs.ENTROPY, **more)
        for stage in ('prepare', 'plan', 'train', 'release'):
            pipeline.run(stage)
        return (workdir / 'release' / 'generator.safetensors').read_bytes()

    whole, stop = train(tmp_path / 'whole'), StopRequest()
    with tiny_runs.stop_at(stop, 'gan', 1), contextlib.suppress(Interrupted):
        train(tmp_path / 'cut', stop=stop)
    assert any((tmp_path / 'cut' / 'checkpoints' / 'gan').iterdir())
    assert not (tmp_path / 'cut' / 'release').exists()
    assert train(tmp_path / 'cut') == whole


# --- audit ----------------------------------------------------------------------------


def test_the_trace_knows_whose_turn_it_is():
    config = settings(dpba_wgan__generator_steps=60)
    trace = dpba_wgan_audit.trace(config, tiny.plan(config), tiny.keys())
    for draws in trace.draws.values():
        for there, chosen in zip(draws.eligible, draws.chosen, strict=True):
            assert len({*(there % CLASSES)}) == 1 and {*chosen} <= {*there}


@pytest.mark.slow
def test_the_audit_passes_it_and_catches_a_missing_clip():
    def failed():
        config = settings(dpba_wgan__noise_levels=1)
        plan = tiny.plan(config)
        with mock.patch.object(auditing, 'STATES', 2):
            (target,) = dpba_wgan_audit.audit_targets(config, plan, (1, 8))
        return tiny.audit_failures(target, plan)

    assert not failed()
    with mock.patch('dpaf_jax.privacy.clipping.clip_factor', lambda *_: 1.0):
        assert 'sensitivity' in failed()
