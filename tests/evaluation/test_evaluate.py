"""Contracts of the downstream evaluation."""

import itertools
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from flax import linen as nn

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation import classical, classifiers, outcome, tables, train, utility
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.networks import pieces
from dpaf_jax.release import card

pytestmark = pytest.mark.usefixtures('optimised')


def toy(num: int, side: int = 12, channels: int = 1, seed: int = 0):
    """Three classes, each bright in its own corner, on noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, num)
    images = rng.integers(0, 120, (num, side, side, channels), dtype=np.uint8)
    half = side // 2
    for k, (y, x) in enumerate(((0, 0), (0, half), (half, 0))):
        images[labels == k, y : y + half, x : x + half] += 100
    return Labelled(images, labels)


def settings(**fields) -> EvaluationConfig:
    usual = {'seeds': 1, 'epochs': 4, 'batch_size': 16}
    return EvaluationConfig(**{**usual, **fields})


def recipe(model: nn.Module, **fields) -> classifiers.Recipe:
    config = settings(**fields)
    return classifiers.Recipe(
        model,
        config.batch_size,
        config.epochs,
        lambda steps: classifiers.make_optimizer(model, steps),
    )


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
            on_progress=lambda step, metrics: seen.append((step, metrics)),
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

    def stop(step, metrics):
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
            told(step, {})

    monkeypatch.setattr(utility, 'train', train)
    with pytest.raises(FloatingPointError):
        utility.evaluate(toy(400), toy(9), 3, settings(seeds=2))


def test_progress_counts_the_steps_of_all_seeds(learned):
    _, seen = learned
    steps = [step for step, _ in seen]
    assert steps == sorted(set(steps))
    assert (
        steps[-1]
        == utility.total_steps(toy(400).images, settings(seeds=2))
        == 2 * 4 * 25
    )
    assert set(seen[0][1]) == {'loss'}


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


@pytest.mark.parametrize(
    'epochs,num_examples,expected',
    [(0, 60_000, 5), (0, 20_000, 5), (0, 10_000, 10), (0, 1437, 70), (3, 1437, 3)],
)
def test_few_images_are_shown_more_often(epochs, num_examples, expected):
    made = recipe(classifiers.LogisticRegression(3), epochs=epochs)
    assert made.epochs_over(num_examples) == expected
    batches = made.steps_per_epoch(num_examples)
    assert made.steps(num_examples) == expected * batches


@pytest.mark.parametrize('side,channels', [(4, 1), (9, 2), (16, 1), (28, 3)])
def test_cnn_takes_small_odd_and_coloured_images(side, channels):
    model = classifiers.Cnn(5)
    x = jnp.zeros((2, side, side, channels))
    logits = jax.eval_shape(
        lambda key: model.init_with_output(key, x, False)[0], jax.random.key(0)
    )
    assert logits.shape == (2, 5)


@pytest.mark.parametrize(
    'depth,width,number', [(16, 2, 691_674), (40, 4, 8_949_210), (28, 10, 36_479_194)]
)
def test_wide_resnets_have_the_parameters_of_their_paper(depth, width, number):
    model = classifiers.WideResNet(10, depth, width)
    images = jnp.zeros((1, 32, 32, 3))
    made = jax.eval_shape(lambda key: model.init(key, images, False), jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(made['params'])) == number


def test_resnext_has_the_parameters_of_its_paper():
    model, images = classifiers.ResNeXt(10), jnp.zeros((1, 32, 32, 3))
    made = jax.eval_shape(lambda key: model.init(key, images, False), jax.random.key(0))
    number = sum(leaf.size for leaf in jax.tree.leaves(made['params']))
    assert number == pytest.approx(34.4e6, rel=2e-3)


def parameters(model: nn.Module, channels: int) -> int:
    images = jnp.zeros((1, 28, 28, channels))
    made = jax.eval_shape(lambda key: model.init(key, images, False), jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(made['params']))


@pytest.mark.parametrize(('channels', 'numbers'), [
    (1, (34_425_546, 8_948_922, 1_730_426)), (3, (34_426_698, 8_949_210, 1_730_714)),
])  # fmt: skip
def test_dpimagebenchs_classifiers_have_as_many_parameters_as_there(channels, numbers):
    """Counted of its own code: resnext.py, wrn.py and resnet.py of evaluation/classifier/."""
    made = classifiers.make_recipes(settings(suite='dpimagebench'), 10, channels)
    assert tuple(parameters(each.model, channels) for each in made.values()) == numbers


def test_the_datalens_cnn_is_theirs():
    """9 * 32 + 32, 9 * 32 * 64 + 64, 11 * 11 * 64 * 64 + 64, 64 * 10 + 10; plain SGD."""
    made = classifiers.make_recipes(settings(suite='slow'), 10, 1)['datalens_cnn']
    images = jnp.zeros((1, 28, 28, 1))
    shapes = jax.eval_shape(
        lambda key: made.model.init(key, images, False), jax.random.key(0)
    )
    number = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert number == 320 + 18_496 + 495_680 + 650
    assert not jax.tree.leaves(made.optimizer(10).init({'w': np.zeros(1)}))


@pytest.mark.parametrize(('fields', 'channels', 'expected'), [
    ({}, 1, (512, 600, 2e-3)), ({}, 3, (256, 250, 1e-4)),
    ({'datalens_epochs': 5, 'datalens_batch_size': 7}, 3, (7, 5, 1e-4)),
])  # fmt: skip
def test_the_datalens_cnn_learns_as_in_their_script_for_such_images(
    fields, channels, expected
):
    made = classifiers.make_recipes(settings(suite='slow', **fields), 2, channels)
    cnn = made['datalens_cnn']
    optimizer, gradient = cnn.optimizer(10), {'w': np.ones(1, np.float32)}
    moved, _ = optimizer.update(gradient, optimizer.init(gradient))
    assert (cnn.batch_size, cnn.epochs) == expected[:2]
    assert -float(moved['w'][0]) == pytest.approx(expected[2])


def test_dpimagebenchs_classifiers_are_trained_as_there():
    made = classifiers.make_recipes(settings(suite='dpimagebench'), 10, 1)
    assert list(made) == ['resnext', 'wide_resnet_40_4', 'resnet_110']
    for each in made.values():
        assert each[1:3] == (256, 50) and each.ema == 0.9999
        assert each.steps(55_000) == 50 * 215
    assert utility.total_steps(DISTINCT, settings(suite='dpimagebench')) == 50 * 215
    wide = made['wide_resnet_40_4'].model.model
    assert (wide.depth, wide.width, wide.dropout) == (40, 4, 0.3)
    rates = made['resnet_110'].optimizer(50 * 215)
    assert bench_rates(rates, [0, 20 * 215, 40 * 215 - 1, 40 * 215 + 1]) == (
        pytest.approx([1e-2, 2e-3, 2e-3, 4e-4], rel=1e-3)
    )


def bench_rates(optimizer: optax.GradientTransformation, steps: list[int]) -> list:
    """How far Adam goes at these steps, where every gradient is 1."""
    params = {'w': jnp.zeros(())}

    def step(state, _):
        updates, state = optimizer.update({'w': jnp.ones(())}, state)
        return state, -updates['w']

    _, moved = jax.lax.scan(step, optimizer.init(params), length=max(steps) + 1)
    return moved[np.array(steps)].tolist()


def test_dpimagebenchs_figure_is_the_mean_of_selected_epochs():
    found = {
        name: {'mean': 0.1, 'selected': {'mean': selected}, 'legacy_max': {'mean': 0.9}}
        for name, selected in (('resnext', 0.2), ('wide', 0.3), ('resnet', 0.7))
    }
    assert outcome.bench_mean(found, 'dpimagebench') == {
        outcome.BENCH_MEAN: pytest.approx(0.4)
    }
    assert outcome.bench_mean(found, 'slow') == {}
    assert outcome.bench_mean({'resnet': {'mean': 0.1}}, 'dpimagebench') == {}


def test_dpimagebenchs_classifiers_see_grey_as_zero():
    class Seen(nn.Module):
        @nn.compact
        def __call__(self, images, train):
            return images.mean(axis=(1, 2))

    images = jnp.array([0.0, 0.5, 1.0])[:, None, None, None] * jnp.ones((3, 4, 4, 1))
    seen = classifiers.Centred(Seen()).apply({}, images, False)
    assert seen.ravel().tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.slow
def test_a_residual_network_learns_and_drops_units_in_training_alone():
    for model in (
        classifiers.Centred(classifiers.ResNet(3, depth=8)),
        classifiers.WideResNet(3, depth=10, width=1, dropout=0.3),
    ):
        (images, labels), made = toy(320), recipe(model, epochs=3)
        window = train.train_window(made, 60)
        variables = train.train(
            made, window, jnp.asarray(images), jnp.asarray(labels, jnp.int32), [0]
        )
        assert utility.accuracy(model, variables, *toy(90, seed=1)) > 0.9
        one, other = (
            utility.predict(model, variables, toy(90)[0]).tolist() for _ in range(2)
        )
        assert one == other


@pytest.mark.slow
def test_a_wide_resnet_learns_and_is_judged_by_what_it_has_seen():
    model = classifiers.WideResNet(3, depth=10, width=1)
    (images, labels), made = toy(320), recipe(model, epochs=2)
    window = train.train_window(made, 40)
    variables = train.train(
        made, window, jnp.asarray(images), jnp.asarray(labels, jnp.int32), [0]
    )
    tests, labels = toy(90, seed=1)
    assert utility.accuracy(model, variables, tests, labels) > 0.9
    # By means over training, not over the images that happen to be judged together.
    alone = [utility.predict(model, variables, tests[i : i + 1])[0] for i in range(90)]
    assert np.mean(alone == labels) > 0.9


def test_a_card_knows_the_classifiers_in_their_order():
    for suite in ('standard', 'slow', 'dpimagebench'):
        asked = settings(wide_resnet='16-2', suite=suite)
        models = list(classifiers.make_recipes(asked, 2, 1))
        assert models == [name for name in card.MODELS if name in models]
    assert tuple(tables.MODELS) == card.TABLE_MODELS


def test_the_slowest_classifier_comes_first():
    models = classifiers.make_recipes(settings(wide_resnet='16-2'), 3, 1)
    assert list(models) == ['wide_resnet', 'cnn', 'logistic_regression']
    wide = models['wide_resnet'].model
    assert (wide.depth, wide.width) == (16, 2)
    assert 'wide_resnet' not in classifiers.make_recipes(settings(), 3, 1)


def share_of_units_alive(optimizer):
    """Of the CNN's 64, behind 16 384 inputs, after ten steps on 16 large patches of colour."""
    model, rng = classifiers.Cnn(2), np.random.default_rng(0)
    patches = rng.uniform(0, 1, (32, 4, 4, 3)).astype(np.float32)
    images = patches.repeat(16, axis=1).repeat(16, axis=2)
    labels = rng.integers(0, 2, 32)
    params = model.init(jax.random.key(0), images, False)
    state = optimizer.init(params)

    def loss(params):
        logits = model.apply(params, images, False)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return each.mean()

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    for _ in range(10):
        params, state = step(params, state)
    _, seen = model.apply(params, images, False, capture_intermediates=True)
    hidden = seen['intermediates']['Dense_0']['__call__'][0]
    return np.mean(np.max(hidden, axis=0) > 0)


@pytest.mark.slow
def test_the_cnns_units_live_through_its_first_steps_on_large_images():
    model = classifiers.Cnn(2)
    assert share_of_units_alive(classifiers.make_optimizer(model, 785)) > 0.5
    plain = optax.adam(classifiers.LEARNING_RATE)
    assert share_of_units_alive(plain) < 0.25  # what the rise is for


@pytest.mark.parametrize('steps', [1, 5, 2345])
def test_the_rate_rises_over_a_tenth_of_the_steps(steps):
    optimizer = classifiers.make_optimizer(classifiers.Cnn(2), steps)
    params, moved = {'w': np.zeros(1)}, []
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for _ in range(steps + 1):
        updates, state = update({'w': np.ones(1)}, state)
        moved.append(-float(updates['w'][0]))
    assert moved[0] == 0
    assert moved[max(1, steps // 10)] == pytest.approx(1e-3, rel=0.01)
    assert moved[-1] == pytest.approx(1e-3, rel=1e-3)


def test_max_pool_is_flaxs_and_so_is_its_gradient():
    x = jax.random.normal(jax.random.key(0), (2, 7, 6, 3))

    def ours(x):
        return (classifiers.max_pool(x) ** 2).sum()

    def flaxs(x):
        return (nn.max_pool(x, (2, 2), (2, 2)) ** 2).sum()

    one, other = (jax.jit(jax.value_and_grad(pool))(x) for pool in (ours, flaxs))
    for made, expected in zip(one, other, strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-6)


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
