"""Contracts of phase 1: the same classifier on any devices, in any windows."""

import functools
import tempfile

import pytest
import tiny
from tiny_phases import SGD, SIGMA, equal, train

from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.phase1 import classifier_phase
from dpaf_jax.methods.dpaf.phase1.classifier_phase import ClassifierPhase
from dpaf_jax.methods.dpaf.phase1.published import make_classifier
from dpaf_jax.training.run import Run

CLASSIFIERS = {
    'all': {},
    'groups, random head': {
        'dpaf__classifier__private': 'conv1',
        'dpaf__classifier__unit': 'group',
    },
    'as published': {'privacy__guarantee': 'as_published'},
}


@functools.cache
def trained_classifier(mode, devices=1, unrolls=True):
    """(start, end, classifier) of two steps."""
    config = tiny.config(**SGD, **CLASSIFIERS[mode])
    run = tiny.run(tempfile.gettempdir(), config, devices, SIGMA)
    classifier = make_classifier(make_networks(config), config, run.plan)
    start = tiny.state(classifier, scale=0.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, 'unrolls', property(lambda self: unrolls))
        patch.setattr(classifier_phase, 'WINDOW', 2)
        phase = ClassifierPhase(run, classifier)
        windows = 2 if unrolls else 1
        return start, train(run, phase, start, windows), classifier


@pytest.mark.parametrize(
    'mode',
    [
        pytest.param('all', marks=pytest.mark.slow),
        'groups, random head',
        pytest.param('as published', marks=pytest.mark.slow),
    ],
)
def test_one_and_eight_devices_train_the_same_classifier(mode):
    start, one, _ = trained_classifier(mode)
    tiny.assert_close(one, trained_classifier(mode, 8)[1])
    assert not equal(start.params['conv1'], one.params['conv1'])


@pytest.mark.slow
@pytest.mark.parametrize('devices', [2, 3, 4])
@pytest.mark.parametrize('mode', CLASSIFIERS)
def test_any_number_of_devices_trains_the_same_classifier(mode, devices):
    one, many = trained_classifier(mode)[1], trained_classifier(mode, devices)[1]
    tiny.assert_close(one, many)


def test_single_steps_of_the_classifier_equal_a_scan():
    _, single, _ = trained_classifier('all')
    tiny.assert_close(single, trained_classifier('all', unrolls=False)[1])


def test_a_random_head_stays_random():
    start, end, classifier = trained_classifier('groups, random head')
    assert classifier.trained == ('conv1',)
    for name in ('conv2', 'head'):
        assert equal(start.params[name], end.params[name])


def test_without_a_guarantee_the_whole_classifier_learns():
    for mode in ('all', 'as published'):
        start, end, _ = trained_classifier(mode)
        for name in ('conv1', 'conv2', 'head'):
            assert not equal(start.params[name], end.params[name])
