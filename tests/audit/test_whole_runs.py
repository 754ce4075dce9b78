"""A whole run against its plan: its steps, keys and records; and faults in these."""

import dataclasses

import numpy as np
import pytest
import tiny
import tiny_runs

from dpaf_jax.audit import black_box, randomness
from dpaf_jax.audit.findings import run_checks
from dpaf_jax.audit.session import AUDITS
from dpaf_jax.config import from_config_dict
from dpaf_jax.methods.dpaf.phase1.classifier_phase import ClassifierPhase
from dpaf_jax.methods.embedding.phase import MatchPhase
from dpaf_jax.methods.g_pate.teachers import Parts
from dpaf_jax.methods.gs_wgan.phase import GsWganPhase
from dpaf_jax.privacy.keys import RunKeys
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.training.sampled_phase import SampledPhase

LABELLED = {
    **tiny.ONE_SHOT,
    'dpaf__classifier__private': 'labeller',
    'dpaf__taps': 'wavelet',
}


def findings_of(method, **fields):
    config = tiny.config(method=method, **fields)
    plan = tiny.plan(config)
    keys = tiny.keys(), tiny.keys(entropy=b'2' * 32)
    trace = AUDITS[method].trace(config, plan, keys[0])
    turns = config.data.num_classes
    return run_checks(randomness.plan_checks(trace, plan, keys, turns))


def failed(findings):
    return {(f.mechanism, f.kind) for f in findings if not f.passed}


@pytest.mark.parametrize('method', AUDITS)
def test_an_honest_run_makes_the_steps_that_are_charged(method):
    findings = findings_of(method)
    assert not failed(findings)
    plan = tiny.plan(tiny.config(method=method))
    asked = {f.mechanism for f in findings if f.kind == 'steps'}
    assert asked == {m.name for m in plan.mechanisms}


def test_so_does_one_with_a_labeller():
    assert not failed(findings_of('dpaf', **LABELLED))


def test_more_steps_than_charged(monkeypatch):
    made = SampledPhase.__init__

    def longer(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.total_steps *= 10

    monkeypatch.setattr(SampledPhase, '__init__', longer)
    assert ('gradient', 'steps') in failed(findings_of('dp_sinkhorn'))


def test_steps_that_the_phase_of_a_labeller_adds(monkeypatch):
    made = ClassifierPhase.__init__

    def longer(self, *args):
        made(self, *args)
        self.total_steps += 8

    monkeypatch.setattr(ClassifierPhase, '__init__', longer)
    assert ('labeller', 'steps') in failed(findings_of('dpaf', **LABELLED))


def test_a_second_release_of_all_records(monkeypatch):
    """Its phase says that one was charged, and its key is another one."""
    window, noise = MatchPhase.window, RunKeys.noise

    def again(self, state, step):
        if step == 3:
            another = lambda keys, name, step: noise(keys, name, 7)  # noqa: E731
            with monkeypatch.context() as patch:
                patch.setattr(RunKeys, 'noise', another)
                state = self._release(state)
        return window(self, state, step)

    monkeypatch.setattr(MatchPhase, 'window', again)
    findings = findings_of('dp_merf')
    assert failed(findings) == {('embedding', 'steps')}
    (found,) = (f for f in findings if not f.passed)
    assert (found.case, found.measured, found.claimed) == ('of one record', 2, 1)


def test_keys_that_anybody_can_compute(monkeypatch):
    """Noise that can be subtracted: their purpose and step are public."""
    digest = RunKeys._digest
    public = RunKeys(b'0' * 32, '0' * 64)
    monkeypatch.setattr(RunKeys, '_digest', lambda self, *which: digest(public, *which))
    assert ('plan', 'noise keys') in failed(findings_of('dp_sinkhorn'))


def test_keys_that_come_again_late(monkeypatch):
    noise = RunKeys.noise
    monkeypatch.setattr(
        RunKeys, 'noise', lambda self, name, t: noise(self, name, t % 3)
    )
    assert ('plan', 'noise keys') in failed(findings_of('dp_sinkhorn'))


def test_a_record_that_visits_teachers(monkeypatch):
    batch = Parts.batch

    def shuffled(self, step, size):
        draw = batch(self, step, size)
        order = np.random.default_rng(step).permutation(len(draw.indices))
        return dataclasses.replace(
            draw,
            indices=draw.indices[order],
            is_padding_example=draw.is_padding_example[order],
        )

    monkeypatch.setattr(Parts, 'batch', shuffled)
    assert ('votes', 'parts') in failed(findings_of('g_pate', g_pate__steps=10))


def test_a_record_that_visits_critics(monkeypatch):
    records = GsWganPhase._records

    def redrawn(self, k):
        self._owner = np.random.default_rng(k).permutation(self._owner)
        return records(self, k)

    monkeypatch.setattr(GsWganPhase, '_records', redrawn)
    assert ('gradient', 'parts') in failed(findings_of('gs_wgan'))


@pytest.mark.parametrize('data', ['mnist', 'celeba64:gender'])
def test_every_config_of_gs_wgan_has_a_tiny_form(data):
    config = from_config_dict(tiny_runs.load_config('gs_wgan', data))
    black_box.check(config, AUDITS['gs_wgan'], 3, 0)


def test_a_config_without_a_tiny_form_is_refused_before_any_check():
    class Nothing:
        @staticmethod
        def shrink(config, number):
            raise UserError('config.x', 'is 1', 'Set it to 2')

    with pytest.raises(UserError, match=r'--runs: is 3, but .*config\.x: is 1'):
        black_box.check(tiny.config(), Nothing, 3, 0)
