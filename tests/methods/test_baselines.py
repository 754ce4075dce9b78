"""The baselines as a user runs them: one command, resumed, verified, audited, reported."""

import contextlib
import functools
import gc
import json
import math
from unittest import mock

import jax
import pytest
import tiny
import tiny_runs
from absl import logging

from dpaf_jax.audit import black_box, session, white_box
from dpaf_jax.audit.findings import run_checks
from dpaf_jax.config import from_config_dict
from dpaf_jax.data import read_manifest
from dpaf_jax.pipeline.synthesize import Pipeline
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.training.signals import Interrupted, StopRequest
from dpaf_jax.verify.verification import verify

SMALL = {
    'dp_merf': {
        'dp_merf__features': 16,
        'dp_merf__generator_steps': 30,
        'dp_merf__batch_size': 8,
    },
    'dp_kernel': {
        'dp_kernel__features': 16,
        'dp_kernel__generator_steps': 30,
        'dp_kernel__batch_size': 8,
    },
    'dp_hp': {
        'dp_hp__sum_order': 2,
        'dp_hp__products': 3,
        'dp_hp__generator_steps': 30,
        'dp_hp__batch_size': 8,
    },
    'pearl': {
        'pearl__features': 16,
        'pearl__generator_steps': 30,
        'pearl__batch_size': 8,
    },
    'ndpdc': {
        'ndpdc__aggregates': 3,
        'ndpdc__batch_size': 8,
        'ndpdc__width': 2,
        'ndpdc__depth': 1,
        'ndpdc__images_per_class': 4,
        'ndpdc__steps': 20,
    },
    'dp_sinkhorn': {'dp_sinkhorn__batch_size': 8, 'dp_sinkhorn__generator_steps': 20},
    'dp_gan': {
        'dp_gan__batch_size': 8,
        'dp_gan__discriminator_steps': 2,
        'dp_gan__generator_steps': 3,
        'dp_gan__width': 2,
        'dp_gan__fc_width': 4,
        'dp_gan__generator_batch_size': 6,
    },
    'dp_cgan': {
        'dp_cgan__batch_size': 8,
        'dp_cgan__discriminator_steps': 2,
        'dp_cgan__generator_steps': 3,
        'dp_cgan__width': 2,
        'dp_cgan__fc_width': 4,
        'dp_cgan__generator_batch_size': 6,
    },
    'g_pate': {
        'g_pate__teachers': 4,
        'g_pate__batch_size': 3,
        'g_pate__width': 3,
        'g_pate__fc_width': 3,
        'g_pate__steps': 3,
        'g_pate__cell': 1,
        'g_pate__fakes': 4,
        'g_pate__projections': 2,
    },
    'gs_wgan': {
        'gs_wgan__batch_size': 12,
        'gs_wgan__discriminator_steps': 2,
        'gs_wgan__generator_steps': 3,
        'gs_wgan__width': 2,
        'gs_wgan__fc_width': 4,
        'gs_wgan__generator_batch_size': 6,
    },
    'dpba_wgan': {
        'dpba_wgan__batch_size': 8,
        'dpba_wgan__discriminator_steps': 2,
        'dpba_wgan__generator_steps': 3,
        'dpba_wgan__width': 2,
        'dpba_wgan__fc_width': 4,
        'dpba_wgan__generator_batch_size': 6,
    },
}
PHASES = {
    'dp_merf': 'generator',
    'dp_kernel': 'generator',
    'dp_hp': 'generator',
    'pearl': 'generator',
    'ndpdc': 'condense',
    'dp_sinkhorn': 'generator',
    'dp_gan': 'gan',
    'dp_cgan': 'gan',
    'dpba_wgan': 'gan',
    'gs_wgan': 'gan',
    'g_pate': 'votes',
}
EARLIER_PHASES = {'ndpdc': {'aggregate'}}
CURVES = {
    'dp_merf': 'loss match',
    'dp_kernel': 'loss match',
    'dp_hp': 'loss match',
    'pearl': 'loss match',
    'ndpdc': 'loss match',
    'dp_sinkhorn': 'noisy gradient norm',
    'dp_gan': 'fakes rejected',
    'dp_cgan': 'fakes rejected',
    'dpba_wgan': 'loss generator',
    'gs_wgan': 'noisy gradient norm',
    'g_pate': 'queries passed',
}  # one of those of the report
METHODS = sorted(SMALL)
FAST_WHOLE = ('dp_merf',)  # to run whole; what the others share is run by it
WHOLE = [
    m if m in FAST_WHOLE else pytest.param(m, marks=pytest.mark.slow) for m in METHODS
]


def config_of(method, source, **changes):
    digits = tiny_runs.load_config('digits')
    small = {'data__image_size': 8, 'data__num_classes': 2, **SMALL[method]}
    return tiny_runs.shrink(digits, source, method=method, **small, **changes)


@functools.cache
def finished(method, folder, **changes):
    """A whole run through the command line, from the digits config."""
    source = tiny_runs.write_npz(folder / 'images.npz')
    config = config_of(method, source, **changes)
    base = tiny_runs.load_config('digits')
    flags = tiny_runs.flags_of(config, base)
    path = tiny_runs.ROOT / 'configs' / 'digits.py'
    workdir = folder / 'run'
    done = tiny_runs.call_main(f'--config={path}', f'--workdir={workdir}', *flags)
    assert (done.code, done.err) == (0, '')
    return workdir, config


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return functools.cache(tmp_path_factory.mktemp)


@pytest.mark.parametrize('method', WHOLE)
def test_one_command_trains_releases_evaluates_and_reports(method, folder):
    workdir, config = finished(method, folder(method))
    report = json.loads((workdir / 'report.json').read_text())
    assert report['method'] == method
    assert report['privacy']['guarantee'] == CERTIFIED
    assert 0.99 * 10 < report['privacy']['epsilon'] <= 10
    assert set(report['accuracy']['synthetic']) == {'cnn', 'logistic_regression'}
    phase = PHASES[method]
    phases = {phase} | EARLIER_PHASES.get(method, set())
    assert {row['phase'] for row in report['history']} == phases
    page = (workdir / 'report.html').read_text()
    assert method in page and CURVES.get(method, '') in page
    released = json.loads((workdir / 'release' / 'config.json').read_text())
    assert method in released and 'dpaf' not in released
    assert released[method] == json.loads(json.dumps(config[method].to_dict()))
    assert f'({method})' in (workdir / 'release' / 'README.md').read_text()
    assert not (workdir / 'private' / 'entropy').exists()


@pytest.mark.parametrize('method', WHOLE)
def test_verify_accepts_the_release_and_no_other_noise(method, folder):
    workdir, _ = finished(method, folder(method))
    assert verify(workdir / 'release').passed
    path = workdir / 'release' / 'privacy.json'
    text = path.read_text()
    fields = json.loads(text)
    fields['mechanisms'][0]['noise_multiplier'] *= 0.9
    try:
        path.write_text(json.dumps(fields))
        assert not verify(workdir / 'release').passed
    finally:
        path.write_text(text)


@pytest.mark.slow  # tests/training/test_resume.py has a fast one of the same code
@pytest.mark.parametrize('method', METHODS)
def test_a_stopped_run_goes_on_with_the_same_bits(method, tmp_path):
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    config = config_of(method, source)

    def train(workdir, **more):
        pipeline = Pipeline(config, workdir, entropy=tiny_runs.ENTROPY, **more)
        for stage in ('prepare', 'plan', 'train', 'release'):
            pipeline.run(stage)
        return (workdir / 'release' / 'generator.safetensors').read_bytes()

    whole = train(tmp_path / 'whole')
    stop = StopRequest()
    with (
        tiny_runs.stop_at(stop, PHASES[method], 1),
        contextlib.suppress(Interrupted),
    ):
        train(tmp_path / 'cut', stop=stop)
    saved = tmp_path / 'cut' / 'checkpoints' / PHASES[method]
    assert any(saved.iterdir()) and not (tmp_path / 'cut' / 'release').exists()
    assert train(tmp_path / 'cut') == whole
    assert verify(tmp_path / 'cut' / 'release').passed


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('data', ['digits', 'mnist', 'fashion_mnist'])
def test_its_config_is_the_data_sets_with_this_method(method, data):
    config = tiny_runs.load_config(method, data)
    typed = from_config_dict(config)
    assert typed.method == method
    assert typed.data == from_config_dict(tiny_runs.load_config(data)).data


@pytest.mark.parametrize('method', METHODS)
def test_an_unknown_data_set_is_refused_with_the_choices(method):
    with pytest.raises(ValueError, match="'nonsense'.* Choose .*mnist"):
        tiny_runs.load_config(method, 'nonsense')


@pytest.mark.parametrize('method', METHODS)
def test_budgets_of_other_methods_do_not_matter(method):
    plans = [
        tiny.plan(tiny.config(method=method, privacy__budgets=budgets))
        for budgets in ('rest', '0.1,rest,0.1', '50%')
    ]
    assert plans[0] == plans[1] == plans[2]


@pytest.mark.slow
@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('mode', ['as_published', 'no privacy'])
def test_the_other_modes_end_to_end(method, mode, tmp_path):
    changes = {
        'as_published': {'privacy__guarantee': 'as_published'},
        'no privacy': {'privacy__epsilon': math.inf},
    }[mode]
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    pipeline = Pipeline(config_of(method, source, **changes), tmp_path / 'run')
    for stage in pipeline.stages():
        result = pipeline.run(stage)
    assert verify(tmp_path / 'run' / 'release').passed
    # What is printed and what is certified coincide, but for these.
    apart = method.endswith('wgan') or method == 'dp_kernel'
    certified = result['privacy']['guarantee'] == CERTIFIED
    assert certified == (mode == 'as_published' and not apart)
    assert read_manifest(tmp_path / 'run' / 'private' / 'data') is not None


@pytest.mark.slow
@pytest.mark.parametrize('method', METHODS)
def test_each_trains_beside_a_class_histogram_and_its_release_verifies(
    method, tmp_path
):
    """DPBA-WGAN above all: it has several mechanisms, and once took another's noise.

    Step by step: test_noisy_prior.py.
    """
    source = tiny_runs.write_npz(tmp_path / 'images.npz')
    config = config_of(method, source, data__noisy_prior=0.1)
    pipeline = Pipeline(config, tmp_path / 'run')
    for stage in ('prepare', 'plan', 'release'):
        pipeline.run(stage)
    assert verify(tmp_path / 'run' / 'release').passed


@pytest.mark.parametrize('method', ['dp_gan', 'dpba_wgan'])
def test_the_audit_looks_at_no_step_that_the_run_does_not_have(method):
    config = from_config_dict(config_of(method, 'digits'))
    plan, keys = tiny.plan(config), RunKeys(b'12345678', 'audit')
    trace = session.AUDITS[method].trace(config, plan, keys)
    seen = {name: len(used) for name, used in trace.keys.items()}
    assert seen == {m.name: m.steps for m in plan.mechanisms}


@pytest.mark.slow
@pytest.mark.parametrize('method', METHODS)
def test_the_audit_finds_no_violation(method):
    config = tiny.config(method=method)
    with mock.patch.object(white_box, 'SAMPLES', 200_000):
        made = session.audit(
            config, plan=tiny.plan(config), devices=(1, 8), repetitions=500, seed=11
        )
    assert not made.violations
    kinds = {finding.kind for finding in made.findings}
    assert {'sensitivity', 'noise level', 'noise keys', 'inclusion'} <= kinds


def test_the_trainings_of_an_audit_are_silent(caplog, capsys):
    before = logging.get_verbosity()
    logging.set_verbosity(logging.INFO)
    try:
        with black_box._silence():
            logging.info('one of dozens')
            print('step 1/2')
        logging.info('afterwards')
    finally:
        logging.set_verbosity(before)
    assert [record.message for record in caplog.records] == ['afterwards']
    assert not capsys.readouterr().out


@pytest.mark.slow
def test_the_trainings_of_an_audit_leave_no_programs():
    config = tiny.config(method='dp_merf')

    def programs(runs):
        check = black_box.check(config, session.AUDITS['dp_merf'], runs, seed=11)
        run_checks([check])
        gc.collect()
        return len(jax.local_devices()[0].client.live_executables())

    assert programs(runs=1) == programs(runs=2)


@pytest.mark.slow
@pytest.mark.parametrize('method', METHODS)
def test_the_audit_of_whole_trainings_runs(method):
    config = tiny.config(method=method)
    check = black_box.check(config, session.AUDITS[method], runs=2, seed=11)
    (finding,) = run_checks([check])
    assert finding.passed and finding.mechanism == 'release'
