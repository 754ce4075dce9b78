"""Contracts of the downstream evaluation."""

import itertools
import math
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from flax import linen as nn
from tiny_judges import recipe, settings, toy

from dpaf_jax.evaluation import classical, classifiers, outcome, train, utility
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.networks import pieces
from dpaf_jax.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures('optimised')


@pytest.fixture(scope='module')
def learned():
    """A whole evaluation with progress, shared by the tests that only look at it."""
    seen = []
    with tiny.quick_compilation():
        result = utility.evaluate(
            toy(400),
            toy(90, seed=1),
            3,
            settings(seeds=2),
            on_progress=seen.append,
        )
    return result, seen


def test_both_models_learn_a_separable_set(learned):
    for name in ('cnn', 'logistic_regression'):
        values = learned[0][name]['values']
        assert len(values) == 2
        assert min(values) > 0.9, name


@pytest.mark.slow
def test_labels_without_information_stay_at_chance():
    images, labels = toy(400)
    shuffled = Labelled(images, np.random.default_rng(2).permutation(labels))
    result = utility.evaluate(shuffled, toy(90, seed=1), 3, settings(epochs=1))
    for name in result:
        assert result[name]['mean'] < 0.6, name


def test_summary_uses_the_sample_standard_deviation():
    assert outcome.summary([0.5, 0.7]) == {
        'mean': pytest.approx(0.6),
        'std': pytest.approx(0.02**0.5),
        'values': [0.5, 0.7],
    }
    assert outcome.summary([0.5])['std'] == 0.0


def test_a_stop_ends_all_trainings_at_their_next_step():
    seen = []

    def stop(step):
        seen.append(step)
        raise InterruptedError

    with tiny.quick_compilation(), pytest.raises(InterruptedError):
        utility.evaluate(toy(400), toy(9), 3, settings(seeds=9), on_progress=stop)
    assert len(seen) < 9  # those that had begun, one step each


def test_an_error_of_one_training_ends_the_others_at_their_next_step(monkeypatch):
    number, begun = itertools.count(), threading.Event()

    def train(recipe, window, images, labels, seed, told, on_epoch):
        if next(number) == 0:
            begun.wait()
            raise FloatingPointError
        begun.set()
        for step in range(10**9):  # for ever, but for the error
            time.sleep(0.001)
            told(step, 0.5)

    monkeypatch.setattr(utility, 'train', train)
    with pytest.raises(FloatingPointError):
        utility.evaluate(toy(400), toy(9), 3, settings(seeds=2))


def test_progress_counts_the_steps_of_all_seeds(learned):
    _, steps = learned
    assert steps == sorted(set(steps))
    total, images = utility.work(toy(400).images, settings(seeds=2))
    assert steps[-1] == total == 2 * 4 * 25
    assert images == settings().batch_size


def test_a_classifier_that_diverges_ends_the_evaluation(monkeypatch):
    def train(recipe, window, images, labels, seed, told, on_epoch):
        told(1, math.nan)

    monkeypatch.setattr(utility, 'train', train)
    with pytest.raises(UserError, match='classifier .* diverges .* its loss is nan'):
        utility.evaluate(toy(400), toy(9), 3, settings())


DISTINCT = np.arange(60_000)  # images, as far as which are held out


def guesses(monkeypatch, *per_epoch):
    """Each epoch of any training predicts one class alone, by its number."""

    def train(recipe, window, images, labels, seed, told, on_epoch):
        for guess in per_epoch:
            on_epoch(guess)
        return per_epoch[-1]

    monkeypatch.setattr(utility, 'train', train)
    monkeypatch.setattr(
        utility, 'predict', lambda model, guess, images: np.full(len(images), guess)
    )


def test_the_value_is_the_last_epochs_and_not_the_best(monkeypatch):
    guesses(monkeypatch, 0, 1, 2)
    source = toy(60)
    tests = Labelled(source.images[:10], np.array([0] * 7 + [1] * 2 + [2]))
    result = utility.evaluate(source, tests, 3, settings(seeds=2))
    assert result['cnn']['values'] == [0.1, 0.1]
    assert not {'selected', 'legacy_max'} & set(result['cnn'])  # nothing was held out


def test_an_epoch_is_selected_by_synthetic_images_and_the_maximum_stands_apart(
    monkeypatch,
):
    guesses(monkeypatch, 0, 1, 2)
    images, labels = toy(120)
    # So the second epoch is best on those held out.
    source = Labelled(images, np.full_like(labels, 1))
    tests = Labelled(images[:10], np.array([0] * 7 + [1] * 2 + [2]))
    config = settings(suite='full')
    found = utility.evaluate(source, tests, 3, config)['cnn']
    assert found['mean'] == 0.1
    assert found['selected']['values'] == [0.2]
    assert found['legacy_max']['values'] == [0.7]


def test_images_that_select_are_not_trained_on():
    kept, held_out = utility._held_out(DISTINCT, settings(suite='full'))
    assert (len(kept), len(held_out)) == (55_000, 5_000)
    assert not np.intersect1d(kept, held_out).size
    kept, held_out = utility._held_out(DISTINCT, settings())
    assert (len(kept), len(held_out)) == (60_000, 0)


def test_copies_of_an_image_that_selects_are_not_trained_on():
    dealt = np.tile(DISTINCT[:24], 50)  # as a release of 24 images deals them out
    kept, held_out = utility._held_out(dealt, settings(suite='full'))
    assert len(held_out) == 2 * 50 and len(kept) == 22 * 50
    assert not np.intersect1d(dealt[kept], dealt[held_out]).size


def test_confusion_and_accuracy_by_class_are_over_all_seeds():
    labels = np.array([0, 0, 1, 1])
    outcomes = [outcome.Outcome(np.array(p)) for p in ([0, 1, 1, 1], [0, 0, 1, 2])]
    found = outcome.summarised(outcomes, labels, 4)
    assert found['confusion'] == [[3, 1, 0, 0], [0, 3, 1, 0], [0] * 4, [0] * 4]
    assert found['per_class'] == [0.75, 0.75, None, None]
    assert found['values'] == [0.75, 0.75]


def gappy(side):
    """Labels 0, 2 and 4."""
    return side._replace(labels=2 * side.labels)


@pytest.mark.slow
def test_classical_models_learn_a_separable_set():
    """Of five classes three are there: labels with gaps."""
    result = classical.evaluate(gappy(toy(200)), gappy(toy(60, seed=1)), 5, seeds=2)
    assert list(result) == classical.installed()
    for name, found in result.items():
        assert len(found['values']) == (1 if name in classical.DRAWS_NOTHING else 2)
        assert found['mean'] > 0.6, name


def test_xgboost_learns_a_separable_set_with_a_gap_in_its_labels(monkeypatch):
    pytest.importorskip('xgboost')
    assert classical.XGBOOST in classical.installed()
    monkeypatch.setattr(classical, 'installed', lambda: [classical.XGBOOST])
    judged = gappy(toy(200)), gappy(toy(60, seed=1)), 5
    result = classical.evaluate(*judged, seeds=2)[classical.XGBOOST]
    assert result == classical.evaluate(*judged, seeds=2)[classical.XGBOOST]
    assert len(result['values']) == 2 and min(result['values']) > 0.8


def test_a_model_that_cannot_be_fitted_has_no_figure_and_stops_no_other():
    """One image a class, repeated, as a collapsed generator makes them."""
    labels = np.arange(40) % 2
    images = (labels * 255).astype(np.uint8)[:, None, None, None] * np.ones(
        (1, 4, 4, 1), np.uint8
    )
    side, told = Labelled(images, labels), []
    found = classical.evaluate(side, side, 2, 1, told.append)
    failed = {line.split()[3].rstrip(':') for line in told if 'no figure for' in line}
    assert 'lda' in failed and failed == set(classical.installed()) - set(found)
    assert found['decision_tree']['mean'] == 1.0


def test_runs_are_repeatable_and_seeds_differ():
    made = recipe(classifiers.LogisticRegression(3), epochs=1)
    window = train.train_window(made, 4)
    images, labels = (jnp.asarray(a) for a in toy(64))

    def run(seed):
        return train.train(made, window, images, labels.astype(jnp.int32), [seed, 0])

    first, again, other = (run(seed)['params']['Dense_0'] for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.array_equal(first['kernel'], other['kernel'])


class Dropping(nn.Module):
    """As little as needs what any of them needs: weights, dropout, means of batches."""

    rate: float = 0.5
    normalises: bool = True

    @nn.compact
    def __call__(self, images, train):
        x = images.reshape(len(images), -1)
        if self.normalises:
            x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.Dropout(self.rate, deterministic=not train)(x)
        return nn.Dense(3)(x)


@pytest.mark.slow
def test_a_scanned_window_equals_an_unrolled_one(monkeypatch):
    made = recipe(Dropping())._replace(ema=0.5)
    images, labels = (jnp.asarray(a) for a in toy(32))
    indices = jnp.arange(24).reshape(3, 8)
    ends = []
    for on_cpu in (True, False):
        monkeypatch.setattr(train, 'on_cpu', lambda on_cpu=on_cpu: on_cpu)
        state = train.init_state(made, 3, images.shape[1:], jax.random.key(0))
        ends.append(
            train.train_window(made, 3)(
                state, images, labels.astype(jnp.int32), indices, jax.random.key(1)
            )
        )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *ends)
    losses = ends[0][1]
    assert losses.shape == (3,)


@pytest.mark.parametrize(
    ('model', 'changed'),
    [(Dropping(0.0, normalises=False), {}), (Dropping(0.0), {'batch_stats'})],
)
def test_a_batch_in_pieces_is_the_same_step(model, changed, monkeypatch):
    """Also of a model that normalises by the batch: it gets the batch whole."""
    images, labels = (jnp.asarray(a) for a in toy(18))
    states = []
    for number in (1, 4):
        monkeypatch.setattr(pieces, 'PIECES', number)
        made = recipe(model)
        state = train.init_state(made, 1, images.shape[1:], jax.random.key(0))
        assert set(state.variables) == {'params', *changed}
        window = train.train_window(made, 1)
        indices, key = jnp.arange(18).reshape(1, 18), jax.random.key(1)
        states.append(window(state, images, labels.astype(jnp.int32), indices, key))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *states)


def test_accuracy_counts_the_last_partial_batch(monkeypatch):
    model = classifiers.LogisticRegression(2)
    kernel = jnp.array([[-1.0, 1.0]])
    variables = {
        'params': {'Dense_0': {'kernel': kernel, 'bias': jnp.array([0.5, 0.0])}}
    }
    images = np.array([0, 255, 0, 255, 255], np.uint8).reshape(5, 1, 1, 1)
    labels = np.array([0, 1, 1, 1, 0])
    monkeypatch.setattr(utility, 'TEST_BATCH', 2)
    assert utility.accuracy(model, variables, images, labels) == 3 / 5


@pytest.mark.parametrize(
    'change,message',
    [
        (lambda x, y: (Labelled(x.images / 255.0, x.labels), y), 'uint8'),
        (lambda x, y: (x, Labelled(y.images[:, :8], y.labels)), 'to test on'),
        (lambda x, y: (Labelled(x.images, x.labels[:-1]), y), 'labels of shape'),
        (lambda x, y: (x, Labelled(y.images, y.labels + 1)), '3 classes'),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        utility.evaluate(*change(toy(12), toy(12)), 3, settings())


def test_classical_models_learn_from_a_class_of_one_image():
    images, labels = toy(60)
    labels[labels == 2] = 0
    labels[0] = 2
    source = Labelled(images, labels)
    made = classical.evaluate(source, toy(30, seed=1), 3, seeds=1)
    assert len(made['mlp']['values']) == 1
