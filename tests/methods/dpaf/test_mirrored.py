"""Images that are as likely mirrored: rows, fakes, labels and samples know no side."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs

from dpaf_jax import methods
from dpaf_jax.methods.dpaf.phase2.gan import Gan
from dpaf_jax.methods.dpaf.taps import features
from dpaf_jax.networks.fixed import dead_leaves
from dpaf_jax.networks.images import mirrored, to_float
from dpaf_jax.release.samplers.dpaf import labeller_features
from dpaf_jax.release.samplers.latent import latent_sampler, mirror_coins
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError

TAPS = 'count,contrast,wavelet,shape'


def one_shot(**fields):
    return tiny.config(**tiny.ONE_SHOT | {'dpaf__taps': TAPS} | fields)


def random_images(number, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(number, 8, 8, 1), dtype=np.uint8)


def queried(config, images):
    """DPAGG's sums [3, F] of images in three classes, before noise."""
    gan = Gan(config, tiny.plan(config), 1)
    params = features.init_taps(config, jax.random.key(0), {})
    maps = jnp.zeros((1, 8, 8, 1)), jnp.zeros((1, 3))
    for name in ('conv1', 'conv2'):  # of which no tap is
        part = getattr(gan.networks, name)
        params[name] = part.init(jax.random.key(1), *maps)
        maps = (part.apply(params[name], *maps),)
    batch = tiny.batch(images, np.arange(len(images), dtype=np.int32) % 3)
    query = tiny.over_devices(gan.aggregator.query, 1)
    sums = query(*jax.tree.map(lambda x: np.asarray(x)[None], (params, batch)))
    return tiny.vector(jax.tree.map(lambda x: x[0], sums))


def test_a_private_row_is_of_both_ways():
    """...as long as the mean of the rows of either, and the same for either."""
    images = random_images(9)
    either = [queried(one_shot(), x) for x in (images, images[:, :, ::-1])]
    both = [
        queried(one_shot(dpaf__mirrored=True), x) for x in (images, images[:, :, ::-1])
    ]
    np.testing.assert_allclose(both[0], both[1], atol=1e-5)
    np.testing.assert_allclose(both[0], (either[0] + either[1]) / 2, atol=1e-4)
    assert np.abs(either[0] - either[1]).max() > 0.01


def test_a_labeller_sees_no_difference():
    images = to_float(jnp.asarray(random_images(4)))
    config = one_shot(dpaf__classifier__private='labeller')
    for asked, same in ((False, False), (True, True)):
        config = dataclasses.replace(
            config, dpaf=dataclasses.replace(config.dpaf, mirrored=asked)
        )
        seen = labeller_features(config, images)
        apart = seen - labeller_features(config, mirrored(images))
        assert (np.abs(apart).max() < 1e-6) == same
        assert np.linalg.norm(seen, axis=1).max() <= 1 + 1e-6


def test_axes_say_little_of_left_and_right():
    """Wavelets turn with an image, but for a pixel: rows along axes are nearly alike."""
    images, apart = dead_leaves.pictures(jax.random.key(1), 20, 16, 1), []
    with mock.patch.multiple('dpaf_jax.methods.dpaf.axes', PICTURES=100, MOST=10):
        for asked in (True, False):
            fields = {'dpaf__axes': 'all', 'data__image_size': 16}
            config = one_shot(dpaf__mirrored=asked, **fields)
            params = jax.jit(lambda key, c=config: features.init_taps(c, key, {}))(
                jax.random.key(0)
            )
            one, other = (
                features.fixed_features(params, x, 'wavelet', '')['wavelet']
                for x in (images, mirrored(images))
            )
            apart.append(np.linalg.norm(one - other) / np.linalg.norm(one))
    assert apart[0] < apart[1] / 2


@pytest.mark.parametrize('number', [1, 4])
def test_a_coin_mirrors_each_fake(number):
    """...the same one however many devices share them."""
    config = one_shot(dpaf__mirrored=True)
    gan = Gan(config, tiny.plan(config), number)
    plain = Gan(one_shot(), tiny.plan(one_shot()), number)
    devices, labels = jax.local_devices()[:number], np.arange(30) % 3
    generator = parallel.replicate(tiny.state(gan).generator, devices)

    def fakes(gan):
        def program(generator):
            return gan.fakes(generator, jax.random.key(3), labels)[0]

        return np.concatenate(parallel.pmapped(program, devices)(generator))[:30]

    made = fakes(gan), fakes(plain)
    turned = np.all(made[0] == made[1][:, :, ::-1], axis=(1, 2, 3))
    assert np.all(turned | np.all(made[0] == made[1], axis=(1, 2, 3)))
    assert np.array_equal(turned, mirror_coins(jax.random.key(3), 30))
    assert 8 <= turned.sum() <= 22


def test_a_coin_mirrors_each_image_that_is_drawn():
    plain = latent_sampler(tiny.config())
    key, labels = jax.random.key(5), np.zeros(40, np.int32)
    params = plain.init(key)
    images = plain.sample(params, key, labels)
    drawn = dataclasses.replace(plain, mirrors=True).sample(params, key, labels)
    turned = np.all(drawn == mirrored(images), axis=(1, 2, 3))
    assert np.all(turned | np.all(drawn == images, axis=(1, 2, 3)))
    assert 10 <= turned.sum() <= 30


@pytest.mark.parametrize(
    'fields',
    [
        {'dpaf__conv2__gradient': 'singleton'},
        {'dpaf__classifier__private': 'conv1'},
        {'privacy__guarantee': 'as_published'},
    ],
)
def test_what_learns_from_images_one_way_is_refused(fields):
    config = tiny.config(dpaf__mirrored=True, **tiny.LABELLED | fields)
    with pytest.raises(UserError, match=r'config\.dpaf\.mirrored|guarantee'):
        methods.plan(config, 40)


def test_photographs_are_mirrored_and_digits_and_clothes_are_not():
    asked = {
        name: tiny_runs.load_config(*name.partition(':')[::2]).dpaf.mirrored
        for name in (
            'celeba32:gender', 'celeba32:hair,canonical', 'celeba64:gender,printed',
            'ffhq128:recommended', 'ffhq128:one_shot', 'cifar10:recommended',
            'lsun_bedroom:recommended', 'digits:recommended', 'mnist:canonical',
            'fashion_mnist:recommended', 'svhn:recommended',
            'recommended:celeba64:hair,3', 'recommended:folder:/a',
        )
    }  # fmt: skip
    assert [name for name, mirrors in asked.items() if mirrors] == [
        'celeba32:gender', 'celeba32:hair,canonical', 'ffhq128:recommended',
        'cifar10:recommended', 'lsun_bedroom:recommended', 'recommended:celeba64:hair,3',
    ]  # fmt: skip
