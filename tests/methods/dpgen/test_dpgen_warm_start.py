"""DPGEN's warm start: no private image in it, no effect on epsilon, and all is told."""

import contextlib
import dataclasses
import json
import shutil
import types

import jax
import numpy as np
import pytest
import tiny
import tiny_runs

from dpaf_jax.audit.methods import dpgen as dpgen_audit
from dpaf_jax.config import public_dict
from dpaf_jax.methods import dpgen
from dpaf_jax.methods.dpgen import phase
from dpaf_jax.methods.dpgen.score_matching import make_score_matching
from dpaf_jax.methods.dpgen.warm_start import WarmStartPhase, warm_start
from dpaf_jax.networks.score import UNLABELLED
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.release.card import model_card
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training import fingerprint
from dpaf_jax.training.signals import Interrupted, StopRequest
from dpaf_jax.verify.verification import verify

PUBLISHED = {'privacy__guarantee': 'as_published'}
STEPS = 3


def config(start='npz:/public.npz', **fields):
    few = {'dpgen__warm_start_steps': STEPS, 'dpgen__scales': 1} | fields
    return tiny.config(method='dpgen', dpgen__warm_start=start, **few)


def run_of(folder, typed, devices=1):
    """With public images of another kind than the private ones."""
    public = tiny.dataset(typed, num_examples=10, seed=5)
    run = tiny.run(folder, typed, devices)
    return dataclasses.replace(run, public=public)


def blindfolded(run):
    hidden = dataclasses.replace(
        run.data, images=tiny.Untouchable(), labels=tiny.Untouchable()
    )
    return dataclasses.replace(run, data=hidden)


# --- config ---------------------------------------------------------------------------


@pytest.mark.parametrize(('start', 'fields', 'problem'), [
    ('private:0.1', {}, r"is 'private:0.1', but a certified run sees private images"),
    ('private:0', PUBLISHED, r"is 'private:0'\. .*private:<share>"),
    ('private:1.5', PUBLISHED, r"is 'private:1.5'"),
    ('private:nan', PUBLISHED, r"is 'private:nan'"),
    ('private', PUBLISHED, r"is 'private'"),
    ('digits', {}, r"is 'digits', the private images"),
    ('digits', PUBLISHED, r"is 'digits', the private images"),
    ('table:/x.csv', {}, r"is 'table:/x.csv'"),
    ('emnist', {}, r"is 'emnist'\. Name a source of public images"),
])  # fmt: skip
def test_what_is_not_public_or_not_known_is_refused(start, fields, problem):
    with pytest.raises(UserError, match=r'config\.dpgen\.warm_start: ' + problem):
        config(start, **fields)


@pytest.mark.parametrize('start', ['', 'npz:/x.npz', 'tfds:emnist', 'folder:/x'])
def test_a_public_source_is_taken(start):
    typed = config(start)
    assert (typed.public_data.source if start else '') == start
    assert not start or typed.public_data.num_classes == 1


def test_another_method_has_no_warm_start():
    assert tiny.config(dpgen__warm_start='digits').public_data is None


@pytest.mark.parametrize(('start', 'fields', 'public'), [
    ('npz:/secret/x.npz', {}, 'npz'),
    ('tfds:emnist@/secret', {}, 'tfds:emnist'),
    ('private:0.1', PUBLISHED, 'private:0.1'),
])  # fmt: skip
def test_the_public_config_says_so_without_a_path(start, fields, public):
    shown = public_dict(config(start, **fields))
    assert shown['dpgen']['warm_start'] == public
    assert 'secret' not in json.dumps(shown)


def test_the_plan_is_the_same():
    plans = [dpgen.plan(config(start), 40) for start in ('', 'npz:/public.npz')]
    assert plans[0] == plans[1] and plans[0].epsilon > 9.8


def test_the_audit_shrinks_it_away():
    assert not dpgen_audit.shrink(config(), 64).dpgen.warm_start


def test_other_public_images_are_another_run():
    typed, plan = config(), tiny.plan(config())
    manifest, devices = tiny.dataset(typed).manifest, jax.local_devices()[:1]
    other = dataclasses.replace(manifest, checksum='1' * 64)
    parts = [
        fingerprint.components(typed, plan, manifest, devices, tiny.ENTROPY, public)
        for public in (manifest, other)
    ]
    assert 'public data checksum' in fingerprint.changes(*parts)


# --- training -------------------------------------------------------------------------


def test_noise_begins_where_the_warm_start_ends_and_no_private_image_is_read(tmp_path):
    run = run_of(tmp_path, config())
    matching = make_score_matching(run.config, run.plan)
    made = warm_start(blindfolded(run), matching)
    cold = phase.ScorePhase(run, matching).init()
    warm = phase.ScorePhase(run, matching, made).init()
    same = jax.tree.map(np.array_equal, cold.params, warm.params)
    assert not all(jax.tree.leaves(same))
    for params in (warm.params, warm.ema_params):
        assert all(jax.tree.leaves(jax.tree.map(np.array_equal, params, made)))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(warm.opt_state))
    assert warm.steps == 0


def test_what_reads_private_images_would_be_seen(tmp_path):
    typed = config('private:0.5', **PUBLISHED)
    run = tiny.run(tmp_path, typed)
    with pytest.raises(AssertionError, match='private images were counted'):
        warm_start(blindfolded(run), make_score_matching(typed, run.plan))


def test_as_published_takes_the_first_share_and_a_certified_run_never(tmp_path):
    typed, seen = config('private:0.25', **PUBLISHED), []
    run = tiny.run(tmp_path, typed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            WarmStartPhase,
            '__init__',
            lambda self, run, matching, data: seen.append(data),
        )
        trained = types.SimpleNamespace(ema_params='average')
        patch.setattr(type(run), 'train', lambda self, phase: trained)
        assert warm_start(run, make_score_matching(typed, run.plan)) == 'average'
    np.testing.assert_array_equal(seen[0].images, run.data.images[:10])
    # Past the config's own check.
    certified = dataclasses.replace(typed.privacy, guarantee='certified')
    run.config = dataclasses.replace(typed, privacy=certified)
    with pytest.raises(ValueError, match='reads no private image without noise'):
        warm_start(run, make_score_matching(typed, run.plan))


def test_a_run_that_lacks_its_public_images_does_not_start_cold(tmp_path):
    run = tiny.run(tmp_path, config())
    with pytest.raises(ValueError, match='no public images'):
        warm_start(run, make_score_matching(run.config, run.plan))


def warm_phase(folder, devices=1, **fields):
    run = run_of(folder, config(**fields), devices)
    matching = make_score_matching(run.config, run.plan)
    white = np.full_like(run.public.images, 255)
    public = dataclasses.replace(run.public, images=white)
    return WarmStartPhase(run, matching, public), run


def test_nothing_is_told_of_private_images(tmp_path):
    run = tiny.run(tmp_path, config('private:0.25', **PUBLISHED))
    matching = make_score_matching(run.config, run.plan)
    told = []
    for trained in (
        WarmStartPhase(run, matching, run.data),
        phase.PublishedPhase(run, matching),
    ):
        state = parallel.replicate(trained.init(), run.devices)
        told.append(trained.window(state, 0)[2])
    assert told == [{}, {}]


def test_no_label_is_told_and_nothing_is_charged(tmp_path):
    phase, _ = warm_phase(tmp_path, dpgen__label_dropout=0.0, dpgen__guidance=1.0)
    assert np.all(np.asarray(phase._feed.data['labels']) == UNLABELLED)
    assert phase.charged(STEPS) == {'score': 0}


@pytest.mark.parametrize('devices', [1, pytest.param(8, marks=pytest.mark.slow)])
def test_it_learns_on_any_number_of_devices(tmp_path, devices):
    phase, run = warm_phase(
        tmp_path, devices, dpgen__warm_start_steps=40, dpgen__learning_rate=0.03
    )
    state, losses = parallel.replicate(phase.init(), run.devices), []
    for step in range(40):
        state, _, metrics = phase.window(state, step)
        losses.append(float(parallel.first(metrics)['loss']))
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
    after = parallel.unreplicate(state)  # checks that devices agree
    assert after.steps == 40
    before = phase.init()
    assert not np.array_equal(
        tiny.vector(before.ema_params), tiny.vector(after.ema_params)
    )


# --- whole runs -----------------------------------------------------------------------


def run_config(folder, **fields):
    """Private images of two classes; public ones of three, larger."""
    folder.mkdir(exist_ok=True)
    source = tiny_runs.write_npz(folder / 'private.npz')
    public = tiny_runs.write_npz(folder / 'public.npz', side=12, num_classes=3, seed=9)
    small = {
        'dpgen__scales': 1,
        'dpgen__warm_start': public,
        'dpgen__warm_start_steps': STEPS,
    }
    return tiny_runs.one_shot(source, method='dpgen', **small | fields)


@pytest.mark.slow
def test_a_run_from_start_to_report_tells_of_it(tmp_path):
    made = run_config(tmp_path)
    flags = tiny_runs.flags_of(made, tiny_runs.load_config('digits'))
    done = tiny_runs.call_main(
        '--config=configs/digits.py', f'--workdir={tmp_path / "run"}', *flags
    )
    assert done.code == 0, done.err
    release = tmp_path / 'run' / 'release'
    report = json.loads((tmp_path / 'run' / 'report.json').read_text())
    assert {row['phase'] for row in report['history']} == {'warm_start', 'score'}
    assert report['privacy']['guarantee'] == 'certified'
    card = ' '.join((release / 'README.md').read_text().split())
    assert '**Public data were used.**' in card and '(source: `npz`)' in card
    assert 'Public data were used' in (tmp_path / 'run' / 'report.html').read_text()
    assert (
        json.loads((release / 'config.json').read_text())['dpgen']['warm_start']
        == 'npz'
    )
    assert verify(release).passed


def test_the_card_of_a_cold_start_is_another_one():
    typed = config()
    fields = tiny.plan(typed).to_json()
    cold = dataclasses.replace(
        typed, dpgen=dataclasses.replace(typed.dpgen, warm_start='')
    )
    assert model_card(typed, fields) != model_card(cold, fields)


def train(made, workdir, *, stop=None):
    pipeline = Pipeline(made, workdir, stop=stop, entropy=tiny_runs.ENTROPY)
    for stage in ('prepare', 'plan', 'train', 'release'):
        pipeline.run(stage)
    return (workdir / 'release' / 'generator.safetensors').read_bytes()


@pytest.mark.slow
def test_a_stop_in_the_middle_of_it_changes_no_bit(tmp_path):
    made = run_config(tmp_path)
    whole, stop = train(made, tmp_path / 'whole'), StopRequest()
    with tiny_runs.stop_at(stop, 'warm_start', 1), contextlib.suppress(Interrupted):
        train(made, tmp_path / 'cut', stop=stop)
    saved = {path.name for path in (tmp_path / 'cut' / 'checkpoints').iterdir()}
    assert 'warm_start' in saved and 'score' not in saved
    assert train(made, tmp_path / 'cut') == whole


def test_the_private_images_at_another_place_are_refused(tmp_path):
    made = run_config(tmp_path)
    copy = tmp_path / 'copy.npz'
    shutil.copy(tmp_path / 'private.npz', copy)
    made.dpgen.warm_start = f'npz:{copy}'
    with pytest.raises(UserError, match='names the private images, at another place'):
        train(made, tmp_path / 'run')


@pytest.mark.slow
def test_as_published_runs_and_says_what_it_did(tmp_path):
    made = run_config(tmp_path, dpgen__warm_start='private:0.5', **PUBLISHED)
    train(made, tmp_path / 'run')
    card = (tmp_path / 'run' / 'release' / 'README.md').read_text()
    assert 'private images as they are (`private:0.5`)' in card
    assert verify(tmp_path / 'run' / 'release').passed
