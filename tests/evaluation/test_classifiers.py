"""The classifiers that judge: whose they are, and how they learn."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from tiny_judges import recipe, settings, toy

from dpaf_jax.evaluation import classifiers, outcome, tables, train, utility
from dpaf_jax.release import card

pytestmark = pytest.mark.usefixtures('optimised')


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
    work = utility.work(np.arange(60_000), settings(suite='dpimagebench'))
    assert work == (50 * 215, 256)
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
    warm_up = max(1, round(steps / 10))
    # Not 0: a training of one step would leave the weights as they were.
    assert moved[0] == pytest.approx(1e-3 / warm_up, rel=0.01)
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
