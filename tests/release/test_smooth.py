"""Samplers of smooth images: what is enlarged has nothing finer than its cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.networks.images import averaged
from dpaf_jax.release.samplers.registry import make_sampler


@pytest.mark.parametrize('method', ['g_pate', 'dp_sinkhorn', 'gs_wgan'])
def test_images_are_no_finer_than_their_cells(method):
    made = {}
    for cell in (1, 2):
        fields = {f'{method}__cell': cell, 'data__image_size': 16}
        sampler = make_sampler(tiny.config(method=method, **fields))
        params = jax.jit(sampler.init)(jax.random.key(0))
        params = jax.tree.map(lambda leaf: 3 * leaf, params)  # as rough as can be
        sample = jax.jit(sampler.sample)
        made[cell] = sample(params, jax.random.key(1), jnp.arange(3))
        assert made[cell].shape == (3, 16, 16, 1)
    rough, smooth = (
        np.mean(np.square(image - np.kron(averaged(image, 2), np.ones((1, 2, 2, 1)))))
        / np.var(image)
        for image in made.values()
    )
    assert smooth < 0.2 < rough
