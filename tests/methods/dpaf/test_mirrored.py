"""Images that mean the same when mirrored: a labeller sees no difference, a coin draws."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import tiny
import tiny_runs

from dpaf_jax.methods.dpaf.phase1.labeller import Labeller
from dpaf_jax.networks.images import mirrored, to_float
from dpaf_jax.release.samplers.dpaf import dpaf_sampler, labeller_features

ON = tiny.LABELLED | {'dpaf__mirrored': True}


def without(config):
    """The same of a labeller that sees an image one way."""
    dpaf = dataclasses.replace(config.dpaf, mirrored=False)
    return dataclasses.replace(config, dpaf=dpaf)


@pytest.mark.parametrize('reads', ['wavelet', 'combined'])
def test_it_reads_the_same_of_an_image_and_of_its_mirror_image(reads):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(4, 8, 8, 1), dtype=np.uint8)
    shown = np.asarray(to_float(images))
    both = tiny.config(**ON, dpaf__classifier__features=reads)
    for config, same in ((both, True), (without(both), False)):
        read = jax.jit(functools.partial(labeller_features, config))
        seen = np.asarray(read(shown))
        apart = seen - read(np.asarray(mirrored(shown)))
        assert (np.abs(apart).max() < 1e-6) == same
        assert np.linalg.norm(seen, axis=1).max() <= 1 + 1e-6


def test_its_axes_are_those_of_what_it_reads(monkeypatch):
    """...of random pictures, mirrored likewise."""
    monkeypatch.setattr('dpaf_jax.methods.dpaf.axes.PICTURES', 60)
    monkeypatch.setattr('dpaf_jax.methods.dpaf.axes.MOST', 10)
    config = tiny.config(**ON, dpaf__classifier__features='combined')
    made = [
        jax.jit(Labeller(c, tiny.plan(c)).init)(jax.random.key(0)).params['axes']
        for c in (config, without(config))
    ]
    assert np.abs(made[0]['mean'] - made[1]['mean']).max() > 1e-3


def test_a_coin_mirrors_each_image_that_is_drawn():
    config = tiny.config(**ON)
    drawing, plain = (dpaf_sampler(c).generator for c in (config, without(config)))
    key, labels = jax.random.key(5), np.zeros(40, np.int32)
    params = jax.jit(plain.init)(key)
    images = np.asarray(jax.jit(plain.sample)(params, key, labels))
    drawn = jax.jit(drawing.sample)(params, key, labels)
    turned = np.all(drawn == mirrored(images), axis=(1, 2, 3))
    assert np.all(turned | np.all(drawn == images, axis=(1, 2, 3)))
    assert 10 <= turned.sum() <= 30


def test_photographs_are_mirrored_digits_and_clothes_are_not():
    asked = [
        'celeba32:gender', 'celeba32:hair,canonical', 'celeba64:gender,printed',
        'ffhq128:recommended', 'ffhq128:one_shot', 'cifar10:recommended',
        'lsun_bedroom:recommended', 'digits:recommended', 'mnist:canonical',
        'fashion_mnist:recommended', 'svhn:recommended', 'recommended:celeba64:hair,3',
        'recommended:folder:/a', 'public:celeba32:gender',
    ]  # fmt: skip
    found = {x: tiny_runs.load_config(*x.partition(':')[::2]) for x in asked}
    assert [x for x in asked if found[x].dpaf.mirrored] == [
        'celeba32:gender', 'celeba32:hair,canonical', 'ffhq128:recommended',
        'cifar10:recommended', 'lsun_bedroom:recommended', 'recommended:celeba64:hair,3',
        'public:celeba32:gender',
    ]  # fmt: skip
