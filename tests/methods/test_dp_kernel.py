"""DP-Kernel as published: a number is noised, and the generator's direction is not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jax.flatten_util import ravel_pytree
from scipy import stats

from dpaf_jax import methods
from dpaf_jax.audit import canaries
from dpaf_jax.methods.dp_kernel.published import LOSS, PublishedKernel
from dpaf_jax.privacy.plan import CERTIFIED
from dpaf_jax.runtime import parallel
from dpaf_jax.runtime.errors import UserError

PUBLISHED = {'method': 'dp_kernel', 'privacy__guarantee': 'as_published'}


def method_of(sigma=1.0):
    config = tiny.config(**PUBLISHED)
    return PublishedKernel(config, tiny.plan(config, sigma))


def test_the_published_plan_certifies_nothing_and_claims_what_was_asked():
    config = tiny.config(**PUBLISHED, privacy__epsilon=1.0)
    plan = methods.get('dp_kernel').plan(config, 4000)
    assert plan.guarantee.startswith('none (as published') and plan.epsilon is None
    assert 0.99 < plan.claimed_epsilon <= 1
    (m,) = plan.mechanisms
    assert (m.name, m.sampling_prob, m.steps) == (LOSS, 10 / 4000, 4)
    assert m.l2_sensitivity == pytest.approx(np.sqrt(2) / 10)
    ours = methods.get('dp_kernel').plan(tiny.config(method='dp_kernel'), 4000)
    assert ours.guarantee == CERTIFIED


def test_more_records_a_step_than_there_are_are_refused():
    with pytest.raises(UserError, match='config.dp_kernel.batch_size'):
        methods.get('dp_kernel').plan(tiny.config(**PUBLISHED), 9)


def test_the_kernel_is_a_mean_of_gaussians_within_a_label():
    method, rng = method_of(), np.random.default_rng(0)
    x = rng.uniform(size=(2, 64)).astype(np.float32)
    labels = jnp.array([0, 1])
    gram = np.asarray(method.kernel(x, labels, x, labels))
    np.testing.assert_allclose(gram, np.eye(2), atol=1e-5)
    square = np.sum(np.square(x[0] - x[1]))
    scales = 8 * np.array(method.settings.length_scales)
    expected = np.mean(np.exp(-square / (2 * scales**2)))
    same = method.kernel(x, 0 * labels, x, 0 * labels)
    assert float(same[0, 1]) == pytest.approx(expected, rel=1e-4)


def records(method, number=6):
    rng = np.random.default_rng(1)
    images = rng.uniform(size=(number, 64)).astype(np.float32)
    return images, jnp.arange(number) % 3, jnp.ones(number)


@functools.cache
def noises(number=400):
    """What is added to a loss, at unit noise, and the loss itself."""
    method = method_of()
    fakes = np.random.default_rng(2).uniform(size=(9, 64)).astype(np.float32)
    labels = jnp.arange(9) % 3

    @jax.jit
    @jax.vmap
    def noisy(key):
        return method.noisy_mmd(records(method), fakes, labels, key)

    keys = np.random.default_rng(3).integers(2**32, size=(number, 8), dtype=np.uint32)
    gram = np.asarray(
        method.kernel(
            jnp.concatenate([records(method)[0], fakes]),
            jnp.concatenate([records(method)[1], labels]),
            jnp.concatenate([records(method)[0], fakes]),
            jnp.concatenate([records(method)[1], labels]),
        ),
        np.float64,
    )
    return np.asarray(noisy(keys), np.float64), gram


def test_the_noise_is_that_of_the_process_in_the_loss():
    found, gram = noises()
    weights = np.r_[np.full(6, 1 / 6), np.full(9, -1 / 9)]
    mmd = weights @ gram @ weights
    enters = np.r_[np.full(6, 1 / 6), np.full(9, -2 / 9)]
    method = method_of()
    std = method.plan[LOSS].noise_std * np.sqrt(enters @ gram @ enters)
    square = np.sum(np.square((found - mmd) / std))
    low, high = stats.chi2.ppf([1e-5, 1 - 1e-5], len(found))
    assert low < square < high and not low < square * 1.5**2 < high


def test_the_generators_direction_is_that_of_the_private_records():
    method = method_of()
    images = canaries.noise_images(method.config.data, 8, seed=0)
    batch = canaries.batch(images, method.config.data, (8, 1))
    state = jax.jit(method.init)(jax.random.key(0))
    public = jnp.arange(4, dtype=jnp.uint32)

    def moved(key):
        after, _ = method.step(state, batch, key, public)
        return ravel_pytree(after.opt_state[0].mu)[0]

    keys = np.random.default_rng(0).integers(2**32, size=(1, 5, 8), dtype=np.uint32)
    steps = jax.vmap(jax.vmap(moved), axis_name=parallel.AXIS)
    found = np.asarray(jax.jit(steps)(keys)[0], np.float64)
    lengths = np.linalg.norm(found, axis=1)
    assert lengths.max() > 1.2 * lengths.min()  # the noise is there
    found /= lengths[:, None]
    np.testing.assert_allclose(np.abs(found @ found[0]), 1, atol=1e-5)


@pytest.mark.slow
def test_records_on_many_devices_are_one_batch():
    method = method_of()
    images = canaries.noise_images(method.config.data, 8, seed=0)
    batch = canaries.batch(images, method.config.data, (8, 1))
    state = jax.device_get(jax.jit(method.init)(jax.random.key(0)))
    keys = np.arange(8, dtype=np.uint32), np.arange(4, dtype=np.uint32)
    ends = []
    for number in (1, 8):
        devices = jax.local_devices()[:number]
        dealt = type(batch)(*(np.stack(np.split(x, number)) for x in batch))
        same = parallel.replicate((state, *keys), devices)
        after, _ = parallel.pmapped(method.step, devices)(same[0], dealt, *same[1:])
        ends.append(parallel.unreplicate(after).params)
    for one, other in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
