"""Figures for people, and the verdict on a run that taught nothing."""

import numpy as np
import pytest

from dpaf_jax.pipeline import figures

PRIVACY = {'epsilon': 3.0}


def evaluated(confusion, seeds=1):
    """What a CNN with these counts over all seeds has, and the floor."""
    counts = np.array(confusion)
    accuracy = float(np.trace(counts) / counts.sum())
    cnn = {
        'mean': accuracy,
        'std': 0.0,
        'values': [accuracy] * seeds,
        'confusion': confusion,
    }
    return {
        'accuracy': {'synthetic': {'cnn': cnn}},
        'floor': float(counts.sum(axis=1).max() / counts.sum()),
    }


NOTHING = 'The images taught the classifier nothing that'


@pytest.mark.parametrize(
    ('confusion', 'words'),
    [
        ([[519, 0], [481, 0]], NOTHING),  # it names the largest class
        ([[0, 519], [0, 481]], NOTHING),  # the other one
        ([[260, 259], [240, 241]], NOTHING),  # a coin
        ([[275, 244], [230, 251]], NOTHING),  # 0.526: it may be chance
        ([[270, 249], [215, 266]], 'though it tells classes apart'),
        ([[400, 119], [200, 281]], ''),
        ([[85, 15], [5, 2]], NOTHING),
        (
            [[895, 5], [60, 40]],
            '',
        ),  # few are told otherwise, nearly all of them rightly
        ([[720, 180], [20, 80]], 'though it tells classes apart'),  # 0.8, floor 0.9
        ([[300, 0, 0], [0, 0, 0], [300, 0, 0]], NOTHING),  # a class without test images
    ],
)
def test_a_run_that_taught_nothing_says_so(confusion, words):
    report = {'privacy': PRIVACY} | evaluated(confusion)
    said = figures.failure(report)
    assert (words in said) if words else not said


def test_several_classifiers_are_no_more_test_images():
    one = [[275, 244], [230, 251]]
    ten = (10 * np.array(one)).tolist()
    report = {'privacy': PRIVACY} | evaluated(ten, seeds=10)
    assert '1000 test images' in figures.failure(report)


def test_a_larger_epsilon_is_named_only_where_it_still_promises_something():
    report = evaluated([[519, 0], [481, 0]])
    said = [
        figures.failure(report | {'privacy': {'epsilon': epsilon}})
        for epsilon in (2.0, 10.0, 'inf', None)
    ]
    assert said[0].endswith('(0.519). More pictures or a larger ε may help.')
    assert all(text.endswith('(0.519). More pictures may help.') for text in said[1:])
