"""BigGAN and PGGAN: an image by itself, weights of norm 1, growth by the step alone."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.networks.gans import biggan, growth, pggan, spectral
from dpaf_jax.networks.gans.sides import double, halve

SIDES, WIDTHS, K = (7, 4, 2), (2, 2, 3), 3
MAKE = {
    'biggan': (
        biggan.BigGanGenerator(SIDES, WIDTHS, 1, K),
        biggan.BigGanDiscriminator(WIDTHS[1:], K),
    ),
    'pggan': (
        pggan.PgganGenerator(SIDES, WIDTHS, 1, K),
        pggan.PgganDiscriminator(WIDTHS, 4, K),
    ),
}
BOTH = list(MAKE)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def params_of(network, scale, *inputs):
    """Normal values, `scale` times as wide: no start is compiled."""
    shapes = jax.eval_shape(network.init, jax.random.key(0), *inputs)
    leaves, tree = jax.tree.flatten(shapes)
    made = [scale * noise(*leaf.shape, seed=i) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(tree, made)


def images_of(name, z, labels, *progress):
    generator, _ = MAKE[name]
    params = params_of(generator, 0.5, z, labels)
    return np.asarray(jax.jit(generator.apply)(params, z, labels, *progress))


def answers_of(name, images, labels, *progress):
    _, discriminator = MAKE[name]
    params = params_of(discriminator, 2.0, images, labels)
    return np.asarray(jax.jit(discriminator.apply)(params, images, labels, *progress))


# --- one image at a time --------------------------------------------------------------


def alone(make):
    """How far the first of four moves where the other three are replaced."""
    one, other = noise(4, 5), noise(4, 5, seed=1)
    other[0] = one[0]
    return np.abs(make(one)[0] - make(other)[0]).max()


@pytest.mark.parametrize('name', BOTH)
def test_a_fake_does_not_depend_on_its_batch(name):
    labels = np.array([0, 1, 2, 0])
    made = images_of(name, noise(4, 5), labels)
    assert made.shape == (4, 7, 7, 1) and np.abs(made).max() < 1
    assert made[0].std() > 0.01 and np.abs(made[0] - made[3]).max() > 0.01
    assert alone(lambda z: images_of(name, z, labels)) < 1e-6


def test_batch_normalisation_would_be_found_out():
    def by_batch(maps):
        mean = jnp.mean(maps, axis=(0, 1, 2))
        return (maps - mean) / jnp.std(maps, axis=(0, 1, 2))

    with mock.patch.object(biggan, 'simplified_instance_norm', by_batch):
        assert alone(lambda z: images_of('biggan', z, np.zeros(4, int))) > 1e-2


@pytest.mark.parametrize('name', BOTH)
def test_an_answer_does_not_depend_on_its_batch_and_reads_the_label(name):
    images, labels = noise(4, 7, 7, 1), np.array([0, 1, 2, 0])
    images[3] = images[0]
    whole = answers_of(name, images, labels)
    images[1:3] = 9.0
    rest = answers_of(name, images, np.array([0, 0, 0, 1]))
    assert whole.shape == (4,)
    assert whole[0] == pytest.approx(whole[3], rel=1e-4)
    assert whole[0] == pytest.approx(rest[0], rel=1e-4)
    assert abs(rest[3] - whole[3]) > 1e-3


# --- spectral normalisation -----------------------------------------------------------


@pytest.mark.parametrize('shape', [(3, 3, 8, 16), (40, 7), (1, 1, 3, 5), (6, 1)])
def test_a_kernel_has_spectral_norm_1_whatever_its_weights(shape):
    for scale in (1e-3, 1.0, 100.0):
        kernel = scale * noise(*shape)
        matrix = kernel.reshape(-1, shape[-1])
        norm = np.linalg.norm(matrix / spectral.spectral_norm(kernel), 2)
        assert norm == pytest.approx(1, abs=0.03)


def test_its_gradient_is_that_of_the_norm():
    kernel = noise(40, 7)
    ours = jax.grad(spectral.spectral_norm)(kernel)
    left, _, right = np.linalg.svd(kernel)
    np.testing.assert_allclose(ours, np.outer(left[:, 0], right[0]), atol=0.05)


def test_a_kernel_of_zeros_stays_one_and_has_a_finite_gradient():
    shape = (4, 3)
    layer = spectral.SpectralDense(3)
    params = {'params': {'_Kernel_0': {'kernel': np.zeros(shape)}, 'bias': np.ones(3)}}

    def total(params):
        return jnp.sum(layer.apply(params, noise(2, 4)))

    value, gradient = jax.value_and_grad(total)(params)
    assert value == 6
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


# --- growing --------------------------------------------------------------------------


def test_the_schedule_begins_innermost_and_ends_whole():
    phases = np.arange(6) / 5
    weights = [growth.weights_at(p, 2).tolist() for p in phases]
    np.testing.assert_allclose(
        weights, [[0, 0], [0, 0], [0, 1], [0, 1], [1, 1], [1, 1]], atol=1e-6
    )
    np.testing.assert_allclose(growth.weights_at(0.3, 2), [0, 0.5], atol=1e-6)
    assert growth.weights_at(1.0, 3).tolist() == [1, 1, 1]


@pytest.mark.parametrize('side', [4, 7])
def test_half_of_a_double_is_the_image(side):
    maps = noise(2, -(-side // 2), -(-side // 2), 3)
    assert double(maps, side).shape == (2, side, side, 3)
    np.testing.assert_allclose(halve(double(maps, side)), maps, rtol=1e-6)


def test_at_the_start_images_are_coarse_and_details_are_not_seen():
    coarse = images_of('pggan', noise(4, 5), np.zeros(4, int), 0.0)
    squares = double(halve(halve(coarse)), 4)
    np.testing.assert_allclose(double(squares, 7), coarse, atol=1e-6)
    images, labels = noise(2, 7, 7, 1), np.zeros(2, int)
    images[1] = double(double(halve(halve(images[:1])), 4), 7)[0]
    one, other = answers_of('pggan', images, labels, 0.0)
    assert one == pytest.approx(other, rel=1e-4)
    one, other = answers_of('pggan', images, labels, 1.0)
    assert abs(one - other) > 1e-2


@pytest.mark.parametrize(
    ('progress', 'asleep'), [(0.0, {0, 1}), (0.5, {0}), (1.0, set())]
)
def test_what_has_not_begun_has_no_gradient_and_gets_no_noise(progress, asleep):
    _, discriminator = MAKE['pggan']
    images, labels = noise(1, 7, 7, 1), np.zeros(1, int)
    params = params_of(discriminator, 2.0, images, labels)

    def answer(params, progress):
        return discriminator.apply(params, images, labels, progress)[0]

    gradient = jax.jit(jax.grad(answer))(params, progress)
    ones = jax.tree.map(jnp.ones_like, params)
    kept = growth.grown_alone(ones, growth.weights_at(progress, 2))['params']
    for name, part in gradient['params'].items():
        sleeps = name.rpartition('_')[2] in map(str, asleep)
        for leaf, keep in zip(
            jax.tree.leaves(part), jax.tree.leaves(kept[name]), strict=True
        ):
            assert np.all(np.asarray(keep) == (not sleeps)), name
            assert not (sleeps and np.any(leaf)), name
