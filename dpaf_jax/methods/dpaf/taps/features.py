"""What DPAGG can read of one image, by the name of its tap.

A tap's bound must hold for every image, since it sets the noise. (Rows are clipped to it all
the same.) What a tap computes with is public or a noised output.
"""

from zlib import crc32

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.axes import Axes, along, init_axes, num_axes, of_pictures
from dpaf_jax.methods.dpaf.networks import Networks, Params
from dpaf_jax.methods.dpaf.taps import cosines
from dpaf_jax.networks.architecture import make_architecture
from dpaf_jax.networks.fixed import contrast, texture
from dpaf_jax.networks.fixed.cosines import cosines_of
from dpaf_jax.networks.fixed.wavelets import num_features, wavelet_features
from dpaf_jax.networks.images import reduced
from dpaf_jax.networks.instance_norm import simplified_instance_norm
from dpaf_jax.networks.perceptual import features as perceptual
from dpaf_jax.networks.perceptual.features import NETWORKS
from dpaf_jax.networks.rows import side_by_side, unit_rows
from dpaf_jax.release.samplers.dpaf import LABELLER, init_weights, read_by

# Of norm at most 1 each.
UNIT_TAPS = (
    'count', 'pixels', 'contrast', 'fourier', 'wavelet', 'shape', 'texture', LABELLER,
    *NETWORKS, 'kinds',
)  # fmt: skip
TAPS = (*UNIT_TAPS, 'conv1', 'conv2')
# Those that gain by axes (docs/research/2026-11-29-axes.md), where the config asks for them.
ALONG_AXES = ('contrast', 'wavelet', 'texture', *NETWORKS, 'kinds')
# Of `init_axes`.
POWER = 0.125


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The columns of every tap, as an array's shape."""
    layout, size = make_architecture(config), config.data.image_size
    injected = config.networks.label_injection == 'first_layer' and layout.parts[0] == 1
    maps1 = layout.maps(1) + (config.data.num_classes if injected else 0)
    columns = {
        'count': (1,),
        'pixels': (size, size, config.data.channels),
        'contrast': (contrast.num_features(config.data.channels),),
        'fourier': (cosines.FOURIER_COLUMNS,),
        'wavelet': (num_features(size, config.data.channels),),
        'shape': (cosines.SHAPE_COLUMNS,),
        'texture': (texture.num_features(size),),
        'kinds': (cosines.SHAPE_COLUMNS,),
        LABELLER: (cosines.LABELLER_COLUMNS,),
        **{name: (2 * perceptual.num_features(name, size),) for name in NETWORKS},
        'conv1': (layout.side(1), layout.side(1), maps1),
        'conv2': (layout.side(2), layout.side(2), layout.maps(2)),
    }
    return columns | {tap: (num_axes(*columns[tap]),) for tap in along_axes(config)}


def along_axes(config: Config) -> tuple[str, ...]:
    """The taps of a row that are read along axes."""
    asked = config.dpaf.axes
    if asked == 'none' or (asked == 'few' and not config.has_few_records):
        return ()
    return tuple(tap for tap in config.dpaf.tap_names if tap in ALONG_AXES)


def init_taps(config: Config, key: jax.Array, learnt: Params) -> Params:
    """What a row's taps compute with, beside D's convolutions: never trained.

    Args:
        config: of the run.
        key: of public coins.
        learnt: by phase 1: with 'labeller', noised, if it has learnt one.
    """
    data, tapped = config.data, config.dpaf.tap_names
    # By name: a tap that is added gives the others no other coins.
    coins = {n: jax.random.fold_in(key, crc32(n.encode())) for n in (*TAPS, 'axes')}
    like = {'image_size': data.image_size, 'channels': data.channels}
    params: Params = {}
    if 'contrast' in tapped:
        params['contrast'] = contrast.init_contrast(coins['contrast'], **like)
    if 'fourier' in tapped:
        params['fourier'] = cosines.init_fourier(coins['fourier'], **like)
    if 'shape' in tapped:
        params['shape'] = cosines.init_shape(coins['shape'], **like)
    if 'texture' in tapped:
        params['texture'] = texture.init_texture(coins['texture'], **like)
    if LABELLER in tapped:
        known = learnt.get(LABELLER) or init_weights(config)
        params[LABELLER] = cosines.init_labeller(coins[LABELLER], known)
    if 'kinds' in tapped:
        number = perceptual.num_features(perceptual.tapped(tapped), data.image_size)
        params['kinds'] = cosines.init_kinds(coins['kinds'], number)
    reads = read_by(config.dpaf.classifier.features) if LABELLER in tapped else ()
    for name, network in NETWORKS.items():
        if name in tapped or name in reads:
            params[name] = network.params()
    if along_axes(config):
        params['axes'] = _init_axes(config, coins['axes'], params)
    return params


def _init_axes(config: Config, key: jax.Array, params: Params) -> dict[str, Axes]:
    """Of each tap that has some, by what random pictures show there."""
    sees = perceptual.tapped(config.dpaf.tap_names)

    def rows(images: jax.Array) -> dict[str, jax.Array]:
        seen = fixed_features(params, images, config.dpaf.classifier.features, sees)
        return {tap: seen[tap] for tap in along_axes(config)}

    seen = of_pictures(rows, key, config.data.shape)
    return {tap: init_axes(x, POWER) for tap, x in seen.items()}


def features(
    networks: Networks, params: Params, images: jax.Array, labels: jax.Array
) -> dict[str, jax.Array]:
    """Every tap of a batch, within its bound.

    Args:
        networks: the modules.
        params: with 'conv1' and 'conv2', and those of `init_taps`.
        images: [B, H, W, C] float32 in [-1, 1].
        labels: [B] int32.

    Returns:
        {tap: [B, *shape]}. Unused taps cost nothing: the compiler drops them.
    """
    maps1, maps2 = sin_maps(networks, params, images, labels)
    fixed = fixed_features(params, images, networks.labeller_reads, networks.kinds_read)
    return fixed | {'conv1': maps1, 'conv2': maps2}


def fixed_features(
    params: Params, images: jax.Array, labeller_reads: str, kinds_read: str
) -> dict[str, jax.Array]:
    """`features` without those of the discriminator, which learns.

    Args:
        params: of `init_taps`.
        images: [B, H, W, C] float32 in [-1, 1].
        labeller_reads, kinds_read: as `Networks` has them.
    """
    light = (images + 1) / 2  # so that black adds nothing
    wavelets = wavelet_features(images)
    taps = {
        'count': jnp.ones((len(images), 1), jnp.float32),
        'pixels': unit_rows(light.reshape(len(images), -1)).reshape(images.shape),
        'wavelet': wavelets,
    }
    if known := params.get('contrast'):
        taps['contrast'] = unit_rows(contrast.contrast_features(light, known))
    if known := params.get('fourier'):
        small = reduced(light).reshape(len(images), -1)
        taps['fourier'] = unit_rows(cosines_of(small, known))
    if known := params.get('shape'):
        taps['shape'] = unit_rows(cosines_of(wavelets, known))
    if known := params.get('texture'):
        taps['texture'] = unit_rows(texture.texture_features(light, known))
    seen = {'wavelet': wavelets}
    for name in NETWORKS:
        if known := params.get(name):
            seen[name] = perceptual.network_features(name, known, images)
            taps[name] = perceptual.with_squares(seen[name])
    if known := params.get('kinds'):
        taps['kinds'] = unit_rows(cosines_of(seen[kinds_read], known))
    if known := params.get(LABELLER):
        read = side_by_side([seen[part] for part in read_by(labeller_reads)])
        taps[LABELLER] = unit_rows(cosines_of(read, known))
    for name, axes in params.get('axes', {}).items():
        taps[name] = along(taps[name], axes)
    return taps


def sin_maps(
    networks: Networks, params: Params, images: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The normalised maps behind conv1 and behind conv2*.

    SIN comes last, as in the paper, and not between the layers.

    Args:
        networks: the modules.
        params: with 'conv1' and 'conv2'.
        images: [B, H, W, C] float32 in [-1, 1].
        labels: [B] int32; outside the classes: no label.

    Returns:
        [B, p1, p1, m1] and [B, p, p, m], of norm at most sqrt(m) p.
    """
    planes = jax.nn.one_hot(labels, networks.num_classes)
    maps1 = networks.conv1.apply(params['conv1'], images, planes)
    maps2 = networks.conv2.apply(params['conv2'], maps1)
    return simplified_instance_norm(maps1), simplified_instance_norm(maps2)
