"""Contracts of the layer notation and of the modules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.taps.layout import make_tap_layout
from dpaf_jax.networks.architecture import make_architecture
from dpaf_jax.networks.generator import _Styled, make_generator
from dpaf_jax.networks.images import to_float, to_uint8
from dpaf_jax.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures('optimised')

KEY = jax.random.key(0, impl='rbg')  # compiles fast


def make_config(layers, size, channels=1, **fields):
    return tiny.config(
        networks__layers=layers,
        data__image_size=size,
        data__channels=channels,
        **fields,
    )


NOTATIONS = [
    ('C2-C1-x', 28, (28, 14, 7, 4)),
    ('C2-C1-×', 32, (32, 16, 8, 4)),
    ('C2-C2-C1', 64, (64, 32, 16, 8, 4, 2)),
    ('C3-C1-x', 128, (128, 64, 32, 16, 8)),
    ('C1-C1-x', 16, (16, 8, 4)),
    ('C1-C1-C1', 13, (13, 7, 4, 2)),
    ('C1-C1-x', 5, (5, 3, 2)),
]


def shapes(config):
    """Shapes of everything behind an image, without compiling: a dict by part."""
    net, data = make_networks(config), config.data

    def through(key):
        image = jnp.zeros((2, data.image_size, data.image_size, data.channels))
        planes = jax.nn.one_hot(jnp.array([0, 1]), data.num_classes)
        conv1 = net.conv1.init(key, image, planes)
        maps1 = net.conv1.apply(conv1, image, planes)
        conv2 = net.conv2.init(key, maps1)
        maps2 = net.conv2.apply(conv2, maps1)
        head, chead = net.head.init(key, maps2), net.classifier_head.init(key, maps2)
        z, labels = jnp.zeros((2, net.z_dim)), jnp.array([0, 1])
        generator = net.generator.init(key, z, labels)
        return {
            'conv1': conv1,
            'maps1': maps1,
            'maps2': maps2,
            'logits': net.head.apply(head, maps2),
            'classes': net.classifier_head.apply(chead, maps2),
            'fakes': net.generator.apply(generator, z, labels),
        }

    return jax.eval_shape(through, KEY)


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize(('layers', 'size', 'sides'), NOTATIONS)
def test_every_layer_halves_the_side_and_g_reverses_them(layers, size, sides, channels):
    config = make_config(layers, size, channels)
    layout = make_architecture(config)
    assert layout.sides == sides
    made = shapes(config)
    side1, side2 = layout.side(1), layout.side(2)
    planes = config.data.num_classes if layout.parts[0] == 1 else 0
    assert made['maps1'].shape[1:3] == (side1, side1)
    assert made['maps2'].shape == (2, side2, side2, layout.maps(2))
    assert made['logits'].shape == (2, 1)
    assert made['classes'].shape == (2, 3)
    assert made['fakes'].shape == (2, size, size, channels)
    if planes:  # planes join behind the first layer, also where it is the last of conv1
        assert made['maps1'].shape[-1] == layout.maps(1) + planes


@pytest.mark.parametrize(
    'taps', ['conv2', 'conv1', 'count,pixels,contrast,fourier,conv1,conv2']
)
@pytest.mark.parametrize('injection', ['first_layer', 'input', 'none'])
@pytest.mark.parametrize(('layers', 'size'), [('C1-C1-x', 8), ('C2-C1-x', 16)])
def test_the_row_layout_matches_what_the_networks_make(layers, size, injection, taps):
    config = make_config(
        layers,
        size,
        networks__label_injection=injection,
        dpaf__taps=taps,
        dpaf__generator__loss_single=0.0,
        dpaf__generator__loss_match=1.0,
        dpaf__conv2__gradient='none',
    )
    made, rows = shapes(config), make_tap_layout(config)
    for block in rows.blocks:
        if block.name in ('conv1', 'conv2'):
            maps = made['maps1' if block.name == 'conv1' else 'maps2']
            assert block.shape == maps.shape[1:]
    parts = {b.name: np.ones((2, *b.shape), np.float32) for b in rows.blocks}
    joined = rows.join(parts)
    assert joined.shape == (2, rows.size)
    for block in rows.blocks:
        np.testing.assert_allclose(rows.part(joined, block.name), 1.0, rtol=1e-5)
    longest = [b.bound / b.size**0.5 * np.ones((1, *b.shape)) for b in rows.blocks]
    row = rows.join(dict(zip(parts, longest, strict=True)))
    assert np.linalg.norm(row) == pytest.approx(rows.bound, rel=1e-5)


@pytest.mark.parametrize('taps', ['count,pixels', 'count,fourier,conv1,conv2'])
def test_the_count_gets_the_share_that_makes_the_mean_most_exact(taps):
    config = tiny.config(**{**tiny.ONE_SHOT, 'dpaf__taps': taps})
    count, *others = make_tap_layout(config).blocks
    assert sum(b.share for b in others) + count.share == pytest.approx(1)
    assert len({b.share for b in others}) == 1
    tried = np.linspace(0.001, 0.999, 999)
    error = sum(b.size for b in others) / (1 - tried) + 1 / tried
    assert count.share == pytest.approx(tried[error.argmin()], abs=0.001)


@pytest.mark.parametrize(
    ('layers', 'size'),
    [('C2-C1-x', 8), ('C1-C1-x', 4), ('C3-C1-x', 16), ('C1-C1-C2', 8)],
)
def test_a_map_of_one_pixel_is_refused(layers, size):
    with pytest.raises(UserError, match='one pixel') as error:
        make_architecture(make_config(layers, size))
    assert error.value.where == 'config.networks.layers'


@pytest.mark.parametrize(('size', 'layers'), [
    (8, 'C1-C1-x'), (28, 'C1-C1-x'), (32, 'C1-C1-x'), (33, 'C2-C1-x'), (64, 'C2-C1-x'),
    (96, 'C3-C1-x'), (128, 'C3-C1-x'), (256, 'C4-C1-x'),
])  # fmt: skip
def test_without_a_notation_layers_halve_to_8_pixels(size, layers):
    assert make_architecture(make_config('', size)) == make_architecture(
        make_config(layers, size)
    )


def test_a_size_too_small_for_any_layers_is_refused():
    with pytest.raises(UserError, match='one pixel'):
        make_architecture(make_config('', 4))


def test_a_conv3_may_end_at_one_pixel():
    # It reads the aggregate: no SIN behind it.
    assert make_architecture(make_config('C1-C1-C1', 8)).sides == (8, 4, 2, 1)


@pytest.mark.parametrize(
    'layers', [' ', 'C2', 'C2-C1', 'C2-C1-', 'c2-c1-x', 'C2-C1-x-', 'C2C1x', 'C-C1-x']
)
def test_a_malformed_notation_is_refused(layers):
    with pytest.raises(UserError, match='Write it like') as error:
        make_architecture(make_config(layers, 64))
    assert error.value.where == 'config.networks.layers'


@pytest.mark.parametrize('layers', ['C0-C1-x', 'C1-C0-x'])
def test_conv1_and_conv2_need_a_layer_each(layers):
    with pytest.raises(UserError, match='need a layer'):
        make_architecture(make_config(layers, 64))


def test_widths_double_up_to_the_largest():
    config = make_config('C2-C2-C1', 64, networks__width=4, networks__max_width=20)
    assert make_architecture(config).widths == (4, 8, 16, 20, 20)


@functools.cache
def conv1_maps(injection, label):
    config = make_config('C1-C1-x', 8, networks__label_injection=injection)
    conv1 = make_networks(config).conv1
    image = np.random.default_rng(0).normal(size=(1, 8, 8, 1)).astype(np.float32)
    planes = jax.nn.one_hot(jnp.array([label]), 3)
    params = jax.jit(conv1.init)(KEY, image, jnp.zeros((1, 3)))
    return params, np.asarray(conv1.apply(params, image, planes))[0]


def test_labels_join_at_the_input_as_maps_of_the_image():
    params, maps = conv1_maps('input', 1)
    assert params['params']['Conv_0']['kernel'].shape[2] == 1 + 3
    assert maps.shape == (4, 4, 2)
    assert not np.allclose(maps, conv1_maps('input', 2)[1])


def test_labels_join_behind_the_first_layer_as_constant_maps():
    params, maps = conv1_maps('first_layer', 1)
    assert params['params']['Conv_0']['kernel'].shape[2] == 1
    assert maps.shape == (4, 4, 2 + 3)
    assert np.array_equal(maps[..., 2:], np.broadcast_to([0, 1, 0], (4, 4, 3)))
    assert np.array_equal(maps[..., :2], conv1_maps('first_layer', 2)[1][..., :2])


def test_without_injection_d_does_not_see_the_label():
    params, maps = conv1_maps('none', 1)
    assert params['params']['Conv_0']['kernel'].shape[2] == 1
    assert np.array_equal(maps, conv1_maps('none', 2)[1])


@pytest.mark.parametrize('injection', ['first_layer', 'input'])
def test_no_label_is_a_map_of_zeros(injection):
    # The classifier's reading: the same conv1 as D's, but nothing to read off.
    outside = conv1_maps(injection, -1)[1]
    assert not np.allclose(outside, conv1_maps(injection, 0)[1])
    assert np.array_equal(outside, conv1_maps(injection, 3)[1])


@pytest.mark.parametrize('injection', ['first_layer', 'input', 'none'])
def test_conv1_has_the_same_shapes_in_c_and_in_d(injection):
    from dpaf_jax.methods.dpaf.phase1.classifier import Classifier
    from dpaf_jax.methods.dpaf.phase2.gan import Gan

    config = make_config('C1-C1-x', 8, networks__label_injection=injection)
    plan, net = tiny.plan(config), make_networks(config)
    gan = Gan(config, plan, 1)
    in_c = tiny.state(Classifier(net, config, plan)).params['conv1']
    in_d = tiny.state(gan).params['conv1']
    assert jax.tree.map(np.shape, in_c) == jax.tree.map(np.shape, in_d)


@pytest.mark.parametrize(
    'kind', ['reverse', 'styled', pytest.param('fine', marks=pytest.mark.slow)]
)
def test_the_generator_depends_on_its_label_and_stays_within_the_range(kind):
    generator = make_generator(make_config('C1-C1-x', 9, networks__generator=kind))
    z = 50 * np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    params = jax.jit(generator.init)(KEY, z, jnp.zeros(3, jnp.int32))
    apply = jax.jit(generator.apply)
    zeros = apply(params, z, jnp.zeros(3, jnp.int32))
    assert zeros.shape == (3, 9, 9, 1)
    assert np.all(np.abs(zeros) <= 1)
    assert not np.allclose(zeros, apply(params, z, jnp.ones(3, jnp.int32)), atol=1e-3)
    assert not np.allclose(zeros[0], zeros[1], atol=1e-3)


def test_a_style_alone_changes_a_layer():
    """The same maps, in another style: another scale and shift of each."""
    layer = _Styled()
    maps = np.random.default_rng(0).normal(size=(2, 5, 5, 3)).astype(np.float32)
    maps[1] = 7 * maps[0] + 3  # what SIN does not see
    style = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    params = jax.tree.map(lambda leaf: 20 * leaf, layer.init(KEY, maps, style))
    same = layer.apply(params, maps, np.repeat(style[:1], 2, 0))
    assert np.allclose(same[0], same[1], atol=1e-3)
    other = layer.apply(params, maps, style)
    assert not np.allclose(other[0], other[1], atol=0.1)


def test_pixels_survive_the_way_to_float_and_back():
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    floats = to_float(pixels)
    assert (float(floats.min()), float(floats.max())) == (-1.0, 1.0)
    assert np.array_equal(to_uint8(floats), pixels)
    assert np.array_equal(to_uint8(np.array([-9.0, 9.0])), [0, 255])
