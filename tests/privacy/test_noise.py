"""Contracts of the Gaussian: its size, its law, its independence, its keys."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from scipy import stats

from dpaf_jax.methods.dpaf.networks import make_networks
from dpaf_jax.methods.dpaf.phase1.classifier import Classifier
from dpaf_jax.methods.dpaf.phase2.conv2_update import conv2_step
from dpaf_jax.methods.dpaf.phase2.gan import Gan, StepKeys
from dpaf_jax.privacy import chacha, noise
from dpaf_jax.privacy.grid import ExactSum, Grid
from dpaf_jax.privacy.noise import add_gaussian, noisy_total
from dpaf_jax.runtime import parallel

pytestmark = pytest.mark.usefixtures('optimised')

DOUBT = 1e-4  # chance that the right noise is refused; the keys are fixed, so it is not
TREE = {'a': np.zeros((100, 70), np.float32), 'b': np.full(3000, 5.0, np.float32)}
SIGMA = 0.7


def accepts(values, sigma):
    """Whether a chi-square test believes that `values` have this standard deviation."""
    total = np.sum(np.square(np.asarray(values, np.float64).ravel() / sigma))
    low, high = stats.chi2.ppf([DOUBT / 2, 1 - DOUBT / 2], np.size(values))
    return low < total < high


def added(step=0, sigma=SIGMA, purpose='conv1'):
    noisy = jax.jit(add_gaussian, static_argnums=2)(
        TREE, tiny.keys().noise(purpose, step), sigma
    )
    return {name: np.asarray(noisy[name]) - TREE[name] for name in TREE}


@pytest.mark.parametrize(
    'sigma', [0.7, *(pytest.param(s, marks=pytest.mark.slow) for s in (1e-3, 250.0))]
)
def test_noise_has_the_standard_deviation_asked_for(sigma):
    for leaf in added(sigma=sigma).values():
        assert accepts(leaf, sigma)
        assert not accepts(leaf, 2 / 3 * sigma)
        assert not accepts(leaf, 3 / 2 * sigma)


def test_noise_is_normal_and_centred():
    values = np.concatenate([leaf.ravel() for leaf in added().values()])
    assert abs(values.mean()) < 4 * SIGMA / np.sqrt(values.size)
    assert stats.kstest(values / SIGMA, 'norm').pvalue > DOUBT


def test_zero_noise_adds_nothing():
    noisy = add_gaussian(TREE, tiny.keys().noise('conv1', 0), 0.0)
    assert all(np.array_equal(noisy[name], TREE[name]) for name in TREE)


def correlation(a, b):
    return abs(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


def test_coordinates_are_independent_within_and_across_leaves():
    leaves = added()
    a, b = leaves['a'].ravel(), leaves['b']
    assert correlation(a[: len(b)], b) < 4 / np.sqrt(len(b))
    assert correlation(a[1:], a[:-1]) < 4 / np.sqrt(len(a))
    columns = np.corrcoef(leaves['a'].T) - np.eye(70)
    assert np.max(np.abs(columns)) < 6 / np.sqrt(100)
    assert len(np.unique(a)) > 0.99 * len(a)


def test_the_same_key_repeats_the_same_bits():
    first, second = added(), added()
    assert all(np.array_equal(first[name], second[name]) for name in TREE)


@pytest.mark.parametrize('other', [{'step': 1}, {'purpose': 'conv2'}])
def test_different_keys_give_uncorrelated_noise(other):
    first, second = added(), added(**other)
    for name in TREE:
        assert correlation(first[name], second[name]) < 4 / np.sqrt(TREE[name].size)


def exact_sums(devices, size=2000):
    """For each device an exact sum of two leaves."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(devices, 3, size)).astype(np.float32)
    halves = {'a': rows[..., : size // 3], 'b': rows[..., size // 3 :]}
    return jax.vmap(Grid(2.0**-10).sum)(halves)


def released(sums, devices, release):
    fn = parallel.pmapped(release, jax.local_devices()[:devices])
    key = np.broadcast_to(tiny.keys().noise('conv1', 0), (devices, 8))
    made = jax.tree.map(np.asarray, fn(sums, key))
    for leaf in jax.tree.leaves(made):
        assert all(np.array_equal(leaf[0], copy) for copy in leaf[1:])
    return jax.tree.map(lambda leaf: leaf[0], made)


FEW_OR_MANY = [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3)), 8]


@pytest.mark.usefixtures('optimised')  # other programs may round a draw otherwise
@pytest.mark.parametrize('devices', FEW_OR_MANY)
@pytest.mark.parametrize('size', [5, 2000])
def test_the_noise_of_a_sum_is_the_same_whoever_makes_it(devices, size):
    sums = exact_sums(devices, size)
    dealt = released(sums, devices, lambda s, key: noisy_total(s, key, SIGMA))
    whole = jax.tree.map(lambda leaf: leaf.sum(axis=0), sums)
    key = tiny.keys().noise('conv1', 0)
    after = jax.jit(lambda s, key: add_gaussian(s, key, SIGMA))(whole, key)
    assert jax.tree.all(jax.tree.map(np.array_equal, dealt, after))


@pytest.mark.parametrize('devices', [pytest.param(1, marks=pytest.mark.slow), 8])
def test_every_coordinate_of_a_sum_over_devices_is_noised_once(devices):
    sums = ExactSum.of(np.zeros((devices, 20000), np.int32), 2.0**-10)
    noisy = released(sums, devices, lambda s, key: noisy_total(s, key, SIGMA))
    assert accepts(noisy, SIGMA)  # and not sqrt(8) times as much
    for part in np.split(noisy, 100):
        assert accepts(part, SIGMA)
    plain = np.zeros((devices, 20000), np.float32)
    noisy = released(plain, devices, lambda s, key: noisy_total(s, key, SIGMA))
    assert accepts(noisy, SIGMA)


def test_devices_make_no_more_noise_than_their_share():
    def drawn(devices):
        """So many blocks of random words are in the program of each device."""
        query = ExactSum.of(np.zeros(4096, np.int32), 2.0**-10)
        key = tiny.keys().noise('conv1', 0)
        program = jax.make_jaxpr(
            lambda s, key: noisy_total(s, key, SIGMA),
            axis_env=[(parallel.AXIS, devices)],
        )(query, key)
        return max(map(int, re.findall(r'u32\[16,(\d+)\]', str(program))))

    assert drawn(1) == 4096 // noise.COORDINATES
    assert drawn(8) == drawn(1) // 8


def test_no_two_words_of_a_key_have_one_counter(monkeypatch):
    seen, blocks = [], chacha.blocks

    def told(key_data, counters):
        jax.debug.callback(lambda c: seen.append(np.asarray(c)), counters)
        return blocks(key_data, counters)

    monkeypatch.setattr(chacha, 'blocks', told)
    size, devices = 1001, 8
    released(
        exact_sums(devices, size), devices, lambda s, key: noisy_total(s, key, SIGMA)
    )
    assert len(seen) == devices
    counters = np.concatenate(seen)
    assert len(counters) == 32 * devices  # of 4 coordinates each: 126 and 2 to spare
    assert len(np.unique(counters)) == len(counters)


def test_zero_noise_leaves_the_sum_over_devices():
    ones = np.ones((8, 5), np.float32)
    assert np.array_equal(
        released(ones, 8, lambda s, k: noisy_total(s, k, 0.0)), 8 * ones[0]
    )


# --- the noise that a step adds is the plan's -----------------------------------------


def classifier_noise(**fields):
    """What one DP-SGD step on an empty draw does to the parameters, times its divisor."""
    config = tiny.config(
        dpaf__classifier__optimizer='sgd', dpaf__classifier__learning_rate=1.0, **fields
    )
    plan = tiny.plan(config, 1.3)
    classifier = Classifier(make_networks(config), config, plan)
    m = plan['conv1']
    shape = (m.num_groups, m.capacity) if m.num_groups > 1 else (m.capacity, 1)
    empty = tiny.batch(
        np.zeros((*shape, 8, 8, 1), np.uint8),
        np.zeros(shape, np.int32),
        np.ones(shape, bool),
    )
    devices = jax.local_devices()[:1]
    state = tiny.state(classifier)
    step = parallel.pmapped(classifier.step, devices)
    key = tiny.keys().noise('conv1', 0)
    with tiny.quick_compilation():
        after, _ = step(*parallel.replicate((state, empty, key), devices))
    trained = {name: state.params[name] for name in classifier.trained}
    divisor = m.num_groups if m.num_groups > 1 else m.expected_batch_size
    moved = jax.tree.map(lambda a, b: (a[0] - b) * divisor, dict(after.params), trained)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moved)])


@pytest.mark.parametrize(
    ('unit', 'clip', 'expected'), [('singleton', 0.1, 0.13), ('group', 1.0, 2.6)]
)
def test_a_classifier_step_adds_noise_of_the_plans_sensitivity(unit, clip, expected):
    values = classifier_noise(
        dpaf__classifier__unit=unit, dpaf__classifier__l2_clip_norm=clip
    )
    assert accepts(values, expected)
    assert not accepts(values, 2 / 3 * expected)
    assert not accepts(values, 3 / 2 * expected)


def make_gan(**fields):
    config = tiny.config(
        dpaf__conv2__optimizer='sgd', dpaf__conv2__learning_rate=1.0, **fields
    )
    plan = tiny.plan(config, 1.3)
    gan = Gan(config, plan, 1)
    return gan, tiny.state(gan)


def step_keys(number):
    """Keys of so many steps that differ in their noise alone."""
    keys = tiny.keys()

    def noise(name):
        return np.stack([keys.noise(name, t) for t in range(number)])

    return StepKeys(
        noise('dpagg'),
        noise('fake'),
        {name: noise(name) for name in ('conv1', 'conv2')},
        np.stack([keys.public('step', 0)] * number),
    )


def test_a_release_adds_noise_of_the_plans_sensitivity():
    gan, state = make_gan()
    expected = 1.3 * gan.taps.bound
    assert gan.taps.bound == pytest.approx(2 * 3**0.5)
    nothing, turn = jnp.zeros((1, gan.taps.size)), jnp.ones(1, bool)
    fn = jax.vmap(
        lambda key: (
            gan.privatised(state, nothing, turn, key).latest
            * gan.schedule.expected_counts
        )
    )
    # One device at a time: the axis of the sum has a single member.
    fn = jax.jit(jax.vmap(fn, axis_name=parallel.AXIS))
    with tiny.quick_compilation():
        values = fn(step_keys(200).real_noise[None])
    assert accepts(values, expected)
    assert not accepts(values, 2 / 3 * expected)
    assert not accepts(values, 3 / 2 * expected)


WITH_D = {
    'dpaf__classifier__private': 'discriminator',
    'networks__width': 14,  # parameters enough to tell a noise's level by
    'networks__max_width': 14,
}


@pytest.mark.parametrize(
    ('gradient', 'expected', 'name', 'fields'),
    [
        ('cotangent', 0.26, 'conv2', {}),
        pytest.param('group', 0.52, 'conv2', {}, marks=pytest.mark.slow),
        ('singleton', 0.13, 'conv1', WITH_D | {'dpaf__classifier__l2_clip_norm': 0.1}),
    ],
)
def test_a_conv2_update_adds_noise_of_the_plans_sensitivity(
    gradient, expected, name, fields
):
    gan, state = make_gan(
        dpaf__conv2__gradient=gradient,
        dpaf__conv2__l2_clip_norm=0.2,
        dpaf__classifier__optimizer='sgd',
        dpaf__classifier__learning_rate=1.0,
        **fields,
    )
    m = gan.plan[name]
    shape = (m.num_groups, m.capacity) if m.num_groups > 1 else (m.capacity, 1)
    empty = tiny.batch(
        np.zeros((*shape, 8, 8, 1), np.uint8),
        np.zeros(shape, np.int32),
        np.ones(shape, bool),
    )
    with tiny.quick_compilation():
        step = parallel.pmapped(
            lambda *args: conv2_step(gan, *args, name=name), jax.local_devices()[:1]
        )
        made = [
            step(*(jax.tree.map(lambda leaf: leaf[None], (state, empty, keys))))
            for keys in (
                jax.tree.map(lambda leaf, i=i: leaf[i], step_keys(2)) for i in (0, 1)
            )
        ]
    divisor = m.num_groups if m.num_groups > 1 else m.expected_batch_size
    # The fakes' part of the two updates is the same.
    values = np.concatenate(
        [
            np.ravel(a - b) * divisor / np.sqrt(2)
            for a, b in zip(
                *(jax.tree.leaves(state.params[name]) for state in made), strict=True
            )
        ]
    )
    assert values.size > 200
    assert accepts(values, expected)
    assert not accepts(values, 2 / 3 * expected)
    assert not accepts(values, 3 / 2 * expected)
