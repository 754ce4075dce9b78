"""The score network, and the samplers on densities whose score is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpaf_jax.networks.score import UNLABELLED, make_score_network, noise_levels
from dpaf_jax.release.samplers.dpgen import annealed_langevin, heun, score_sampler
from dpaf_jax.runtime.errors import UserError

MEAN, STD = 0.7, 0.3
LEVELS = tuple(np.geomspace(4.0, 0.05, 24))


def denoise(x, sigma):
    """The mean of a N(MEAN, STD^2) pixel given x = pixel + sigma z."""
    return (STD**2 * x + sigma**2 * MEAN) / (STD**2 + sigma**2)


def start(number=10_000):
    return LEVELS[0] * jax.random.normal(jax.random.key(1), (number,))


@pytest.mark.slow
def test_langevin_reaches_a_known_gaussian():
    made = annealed_langevin(denoise, start(), jax.random.key(2), LEVELS, 200, 0.02)
    assert np.mean(made) == pytest.approx(MEAN, abs=0.02)
    # Steps shrink with the level: a little of earlier levels' spread is frozen in.
    assert np.std(made) == pytest.approx(STD, rel=0.05)
    wrong = annealed_langevin(
        lambda x, sigma: 2 * denoise(x, sigma) - x, start(), jax.random.key(2),
        LEVELS, 200, 0.02,
    )  # fmt: skip
    assert abs(np.std(wrong) - STD) > 0.1 * STD


def test_langevin_finds_both_modes_of_a_mixture():
    def score_of_two(x, sigma):
        weight = jax.nn.sigmoid(2 * x / (sigma**2 + 0.01))  # modes at -1 and 1
        return (0.01 * x + sigma**2 * (2 * weight - 1)) / (0.01 + sigma**2)

    made = annealed_langevin(score_of_two, start(), jax.random.key(3), LEVELS, 10, 0.05)
    assert np.mean(made > 0) == pytest.approx(0.5, abs=0.03)
    assert np.mean(np.abs(np.abs(made) - 1) < 0.4) > 0.98


def test_heun_is_the_flow_that_carries_the_first_level_to_the_gaussian():
    first, last = LEVELS[0], LEVELS[-1]
    x = start(1000)
    # The flow keeps (x - MEAN) / sqrt(STD^2 + sigma^2).
    there = MEAN + (x - MEAN) * np.sqrt((STD**2 + last**2) / (STD**2 + first**2))
    exact = denoise(there, last)
    np.testing.assert_allclose(heun(denoise, x, LEVELS), exact, atol=0.01)
    coarse = heun(denoise, x, LEVELS[::8])
    assert np.max(np.abs(coarse - exact)) > 0.03


def network_and_params(**fields):
    config = tiny.config(method='dpgen', dpgen__scales=2, **fields)
    sampler = score_sampler(config)
    params = jax.jit(sampler.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    # The last layer starts at 0: everything would be equal.
    params = jax.tree.map(
        lambda p: p + 0.3 * rng.normal(size=p.shape).astype(np.float32), params
    )
    return sampler, params


@pytest.mark.parametrize(('side', 'channels', 'scales', 'patch'), [
    (8, 1, 2, 2), (8, 3, 3, 1), (28, 1, 3, 2), (30, 1, 2, 4), (128, 3, 4, 4),
])  # fmt: skip
def test_any_square_picture_fits(side, channels, scales, patch):
    config = tiny.config(
        method='dpgen', data__image_size=side, data__channels=channels,
        dpgen__scales=scales, dpgen__patch=patch,
    )  # fmt: skip
    sampler = score_sampler(config)
    shape = (2, side, side, channels)
    params = jax.eval_shape(sampler.init, jax.random.key(0))
    made = jax.eval_shape(
        sampler.network.apply, params, jnp.zeros(shape), jnp.ones(2), jnp.zeros(2, int)
    )
    assert made.shape == shape


def test_too_many_scales_are_refused():
    with pytest.raises(UserError, match=r'dpgen\.scales: is 3'):
        make_score_network(tiny.config(method='dpgen', dpgen__scales=3))


def test_no_image_sees_another_of_its_batch():
    sampler, params = network_and_params()
    rng = np.random.default_rng(1)
    images = rng.normal(size=(4, 8, 8, 1)).astype(np.float32)
    sigma, labels = jnp.array([0.1, 1.0, 3.0, 0.5]), jnp.array([0, 1, 2, 0])
    apply = jax.jit(sampler.network.apply)
    whole = apply(params, images, sigma, labels)
    others = images.copy()
    others[1:] *= 100
    np.testing.assert_array_equal(apply(params, others, sigma, labels)[0], whole[0])
    for changed in ((sigma.at[0].set(2.0), labels), (sigma, labels.at[0].set(1))):
        assert np.max(np.abs(apply(params, images, *changed)[0] - whole[0])) > 1e-3


def test_almost_clean_images_stay_and_pure_noise_is_scaled_down():
    sampler, params = network_and_params()
    image = np.random.default_rng(1).uniform(-1, 1, (1, 8, 8, 1)).astype(np.float32)
    label = jnp.zeros(1, int)
    apply = jax.jit(sampler.network.apply)
    same = apply(params, image, np.full(1, 1e-4, np.float32), label)
    np.testing.assert_allclose(same, image, atol=1e-2)
    far = apply(params, 1e3 * image, np.full(1, 1e3, np.float32), label)
    assert np.max(np.abs(far)) < 20


def test_levels_are_a_geometric_sequence_from_the_config():
    levels = noise_levels(tiny.config(method='dpgen', dpgen__num_levels=5))
    assert (levels[0], levels[-1]) == (10.0, pytest.approx(0.1))
    ratios = np.array(levels[1:]) / levels[:-1]
    np.testing.assert_allclose(ratios, ratios[0])


@pytest.mark.slow
def test_guidance_goes_from_any_class_to_the_class_and_beyond():
    x = jax.random.normal(jax.random.key(0), (3, 8, 8, 1))
    labels, made = jnp.array([0, 1, 2]), {}
    for guidance in (0.0, 1.0, 3.0):
        sampler, params = network_and_params(dpgen__guidance=guidance)
        made[guidance] = sampler._denoise(params, x, jnp.float32(0.5), labels)
    apply, sigma = sampler.network.apply, jnp.full(3, 0.5)
    nobody = apply(params, x, sigma, jnp.full(3, UNLABELLED))
    np.testing.assert_allclose(made[1.0], apply(params, x, sigma, labels), atol=1e-5)
    np.testing.assert_allclose(made[0.0], nobody, atol=1e-5)
    np.testing.assert_allclose(made[3.0], 3 * made[1.0] - 2 * made[0.0], atol=1e-4)


@pytest.mark.parametrize(
    'kind', [pytest.param('heun', marks=pytest.mark.slow), 'langevin']
)
def test_samples_depend_on_key_and_label_alone(kind):
    sampler, params = network_and_params(dpgen__sampler=kind)
    sample, labels = jax.jit(sampler.sample), jnp.array([0, 1, 2, 0])
    made = sample(params, jax.random.key(1), labels)
    assert made.shape == (4, 8, 8, 1) and np.all(np.isfinite(made))
    np.testing.assert_array_equal(made, sample(params, jax.random.key(1), labels))
    other = sample(params, jax.random.key(1), jnp.array([1, 1, 2, 0]))
    np.testing.assert_array_equal(other[1:], made[1:])
    assert np.any(other[0] != made[0])
    assert np.any(sample(params, jax.random.key(2), labels) != made)
