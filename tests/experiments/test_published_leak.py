"""The published classifier phase leaks more than it claims; the certified one does not."""

import dataclasses

import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.phase1.published import make_classifier
from dpaf_jax.methods.dpaf.plan import _phase1
from dpaf_jax.privacy import published
from dpaf_jax.privacy.plan import PrivacyPlan
from experiments.leaks import games as own_games
from experiments.leaks.outcome import GUARANTEES, attack
from experiments.leaks.published import describe
from experiments.leave_one_out import leave_one_out

ALPHA = 1e-3
# Of the certified plan for N = 240, q = 1, 8 steps at epsilon1 = 0.1; a test of the
# accountant would take longer than the attack.
CERTIFIED_SIGMA = 86.98


def plan(config, number):
    """conv1's mechanism alone, with its real noise, without the other parts' accounting."""
    m = _phase1(config, number)
    if config.privacy.guarantee == 'as_published':
        (m,) = published.calibrate([m], {'conv1': 0.1}, 0.1, config.privacy.delta)
    else:
        m = dataclasses.replace(m, noise_multiplier=CERTIFIED_SIGMA)
    return PrivacyPlan(
        (m,), 'test', None, None, None, config.privacy.delta, 0.0, number
    )


@pytest.fixture
def games(monkeypatch):
    monkeypatch.setattr(own_games.dpaf, 'plan', plan)
    return own_games


@pytest.mark.slow
@pytest.mark.parametrize('guarantee', GUARANTEES)
def test_the_last_iterate_betrays_the_record_where_published(games, guarantee):
    outcome = attack(games.tipping(guarantee), 50, ALPHA)
    assert outcome.epsilon1 == pytest.approx(0.1, abs=2e-3)
    if guarantee == 'as_published':
        assert outcome.lower_bound > 10 * outcome.epsilon1
    else:
        assert outcome.lower_bound < outcome.epsilon1


@pytest.mark.slow
def test_one_batch_without_the_record_goes_backwards(games):
    # The second game with one hundredth of its steps, and the noise of the full size.
    game = games.subsampled('as_published', num_examples=24 * 104)
    m = dataclasses.replace(game.mechanism, noise_multiplier=2.956)
    quiet = dataclasses.replace(game.classifier.plan, mechanisms=(m,))
    classifier = dataclasses.replace(game.classifier, plan=quiet)
    game = dataclasses.replace(game, classifier=classifier)
    out, in_ = (game.play(50, is_in, seed) for seed, is_in in enumerate((False, True)))
    usual = in_.mean(axis=0)
    along = [np.einsum('nti,ti->nt', m, usual) / (usual**2).sum(1) for m in (out, in_)]
    # Of late turns alone: the classifier must have learnt its lesson first.
    back = np.mean(along[0].min(axis=1) < -0.3)
    assert back > 0.5 and np.all(along[1].min(axis=1) > -0.3)


@pytest.mark.slow
@pytest.mark.parametrize('guarantee', GUARANTEES)
def test_leave_one_out_breaks_the_bound_only_where_published(guarantee):
    config = tiny.config(
        privacy__guarantee=guarantee,
        dpaf__classifier__batch_size=4,
        dpaf__classifier__l2_clip_norm=1e-4,  # below every gradient: all are clipped
        dpaf__classifier__learning_rate=0.05,
    )
    classifier = make_classifier(make_networks(config), config, tiny.plan(config))
    records = np.arange(2)
    ratios = leave_one_out(classifier, tiny.dataset(config), records, 16, tiny.keys())
    assert ratios.is_drawn.any() and not ratios.is_drawn.all()
    found = describe({guarantee: ratios})[guarantee]
    if guarantee == 'certified':
        assert 0 < found['largest_drawn'] <= 1
        assert found['largest_not_drawn'] == 0
    else:
        assert found['largest_drawn'] > 1
        assert found['largest_not_drawn'] > 0
