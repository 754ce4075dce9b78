"""Layers whose per-example kernel gradients are made for being clipped."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaf_jax.networks.layers import (
    FEW_MAPS,
    MANY_MAPS,
    convolve,
    convolve_by_shape,
    convolve_image,
    multiply,
)

pytestmark = pytest.mark.usefixtures('optimised')


def arrays(side, kernel, number=3, units=4):
    rng = np.random.default_rng(side)
    maps = rng.normal(size=(units, number, side, side, 5)).astype(np.float32)
    return maps, rng.normal(size=(kernel, kernel, 5, 6)).astype(np.float32)


def loss(conv):
    def of(kernel, maps):
        return jnp.sum(jnp.sin(conv(maps, kernel)))

    return of


def flax_conv(stride, **how):
    module = nn.Conv(0, (0, 0), strides=stride, use_bias=False, **how)

    def conv(maps, kernel):
        sized = module.clone(kernel_size=kernel.shape[:2], features=kernel.shape[-1])
        return sized.apply({'params': {'kernel': kernel}}, maps)

    return conv


@pytest.mark.parametrize('stride', [1, 2])
@pytest.mark.parametrize(
    ('side', 'kernel'),
    [
        *((7, 4), (2, 4)),
        *(
            pytest.param(*sizes, marks=pytest.mark.slow)
            for sizes in [(8, 4), (7, 3), (5, 5)]
        ),
    ],
)
def test_it_is_flaxs_convolution_with_the_same_gradients(side, kernel, stride):
    maps, weights = arrays(side, kernel)
    ours = loss(flax_conv(stride, conv_general_dilated=convolve))
    flaxs = loss(flax_conv(stride))
    for argument in (0, 1):
        made, expected = (
            (
                jax.jit(jax.grad(fn, argument))(weights, maps[0]),
                jax.jit(jax.vmap(jax.grad(fn, argument), (None, 0)))(weights, maps),
            )
            for fn in (ours, flaxs)
        )
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(('side', 'products'), [(5, 0), (6, 1), (16, 1), (17, 0)])
def test_a_convolution_by_shape_has_the_same_value_and_gradients(side, products):
    maps, weights = arrays(side, 3)
    weights = np.tile(weights, (1, 1, 1, -(-MANY_MAPS // weights.shape[-1])))
    ours, flaxs = (
        loss(flax_conv(1, **how))
        for how in ({'conv_general_dilated': convolve_by_shape}, {})
    )
    program = str(jax.make_jaxpr(ours)(weights, maps[0]))
    if jax.default_backend() == 'cpu':
        assert ('conv_general_dilated' in program) != products
    for argument in (0, 1):
        made, expected = (
            jax.jit(jax.value_and_grad(fn, argument))(weights, maps[0])
            for fn in (ours, flaxs)
        )
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize('stride', [1, 2])
@pytest.mark.parametrize(('side', 'kernel'), [(7, 3), (8, 4), (6, 1)])
def test_many_maps_have_the_same_gradient_of_a_whole_batch(side, kernel, stride):
    maps, weights = arrays(side, kernel)
    weights = np.tile(weights, (1, 1, 1, -(-FEW_MAPS // weights.shape[-1])))
    ours = loss(flax_conv(stride, conv_general_dilated=convolve))
    made, expected = (
        jax.jit(jax.grad(fn))(weights, maps[0])
        for fn in (ours, loss(flax_conv(stride)))
    )
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-3)
    if jax.default_backend() == 'cpu':
        program = str(jax.make_jaxpr(jax.grad(ours))(weights, maps[0]))
        assert program.count('dot_general[') == kernel**2


def test_kernels_may_have_an_axis_of_their_own_too():
    maps, weights = arrays(8, 4)
    many = np.stack([weights * scale for scale in (1, 2, 3, 4)])
    ours = loss(flax_conv(2, conv_general_dilated=convolve))
    made = jax.jit(jax.vmap(jax.grad(ours)))(many, maps)
    for i in range(4):
        expected = jax.grad(loss(flax_conv(2)))(many[i], maps[i])
        np.testing.assert_allclose(made[i], expected, rtol=1e-4, atol=1e-4)


def test_gradients_by_example_are_no_convolutions_with_groups():
    maps, weights = arrays(8, 4)

    def groups(conv):
        by_unit = jax.vmap(jax.grad(loss(conv)), (None, 0))
        text = str(jax.make_jaxpr(by_unit)(weights, maps))
        return text.count('batch_group_count=4') + text.count('feature_group_count=4')

    assert groups(flax_conv(2)) > 0
    assert groups(flax_conv(2, conv_general_dilated=convolve)) == 0


@pytest.mark.parametrize('argument', [0, 1])
def test_a_dense_layer_has_flaxs_value_and_gradients_of_both_orders(argument):
    rng = np.random.default_rng(1)
    units = rng.normal(size=(4, 3, 7)).astype(np.float32)
    kernel = rng.normal(size=(7, 5)).astype(np.float32)

    def found(dense):
        def of(kernel, inputs):
            return jnp.sum(jnp.sin(dense.apply({'params': {'kernel': kernel}}, inputs)))

        def penalty(kernel, inputs):
            return jnp.sum(jnp.square(jax.grad(of, 1)(kernel, inputs)))

        values = [
            jax.vmap(jax.value_and_grad(fn, argument), (None, 0))(kernel, units)
            for fn in (of, penalty)
        ]
        return jax.tree.leaves([values, jax.grad(of, argument)(kernel, units[0])])

    ours = found(nn.Dense(5, use_bias=False, dot_general=multiply))
    for one, other in zip(ours, found(nn.Dense(5, use_bias=False)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_dense_layers_gradients_by_example_are_not_turned_round():
    def gradients(dense):
        def of(kernel, inputs):
            return jnp.sum(jnp.sin(dense.apply({'params': {'kernel': kernel}}, inputs)))

        by_example = jax.vmap(jax.grad(of), (None, 0))
        shapes = jnp.zeros((64, 32)), jnp.zeros((16, 1, 64))
        return str(jax.make_jaxpr(by_example)(*shapes))

    turned = 'f32[16,64,32] = transpose'
    assert turned in gradients(nn.Dense(32, use_bias=False))
    assert turned not in gradients(nn.Dense(32, use_bias=False, dot_general=multiply))


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize(('side', 'kernel'), [(8, 5), (8, 3), (7, 5), (7, 2), (6, 4)])
def test_a_first_layer_is_a_convolution_of_stride_2_that_sees_grey_in_every_channel(
    side, kernel, channels
):
    rng = np.random.default_rng(side)
    images = rng.normal(size=(2, side, side, channels)).astype(np.float32)
    weights = rng.normal(size=(kernel, kernel, 3, 4)).astype(np.float32)

    def plainly(images):
        colour = jnp.broadcast_to(images, (*images.shape[:-1], 3))
        return jax.lax.conv_general_dilated(
            colour, weights, (2, 2), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
        )

    made, back = jax.vjp(lambda x: convolve_image(x, weights), images)
    expected, plain_back = jax.vjp(plainly, images)
    np.testing.assert_allclose(made, expected, atol=1e-4)
    (by_images,), (plain,) = back(jnp.cos(expected)), plain_back(jnp.cos(expected))
    np.testing.assert_allclose(by_images, plain, atol=1e-4)
