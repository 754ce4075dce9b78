"""A planted leak is found by both attacks, and by their command's exit status."""

import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
import tiny_runs
from sklearn.datasets import load_digits

from dpaf_jax.attack import __main__
from dpaf_jax.attack.registry import ATTACKS
from dpaf_jax.attack.target import Target
from dpaf_jax.config import from_config_dict
from dpaf_jax.data import prepare
from dpaf_jax.training.workdir import Workdir

pytestmark = pytest.mark.usefixtures('optimised')

MEMBERS, TUNED, SYNTHETIC = 600, 100, 500
Z_DIM, HIDDEN = 16, 256
BOTH = 'membership', 'memorisation'
QUICKLY = pytest.param('membership', marks=pytest.mark.slow), 'memorisation'


@functools.cache
def digits():
    """Real 8 x 8 images in random order: training, held-out, and those of nobody."""
    images = np.round(load_digits().images * 255 / 16).astype(np.uint8)[..., None]
    images = images[np.random.default_rng(0).permutation(len(images))]
    return np.split(images, [MEMBERS, 2 * MEMBERS])


def target(folder, synthetic, epsilon=1.0):
    members, others, _ = digits()
    privacy = {'guarantee': 'certified', 'epsilon': epsilon, 'delta': 1e-5}
    labels = np.zeros(MEMBERS, np.int32)
    return Target(synthetic, members, labels, others, privacy, folder)


def generate(params, z):
    (w1, b1), (w2, b2) = params
    return jax.nn.sigmoid(jax.nn.relu(z @ w1 + b1) @ w2 + b2)


def latent(key, modes, number):
    """Draws from a mixture of narrow normals: which one, and where."""
    first, second = jax.random.split(key)
    which = jax.random.randint(first, number, 0, modes)
    centres = jax.random.normal(jax.random.key(7), (modes, Z_DIM))
    return which, centres[which] + 0.1 * jax.random.normal(second, (*number, Z_DIM))


@functools.partial(jax.jit, static_argnames='steps')
def fine_tuned(images, key, steps=600, batch=100):
    """A generator that learns images [n, d] by heart, one for each mode of its latent."""
    sizes = Z_DIM, HIDDEN, images.shape[1]
    layers = zip(sizes[:-1], sizes[1:], jax.random.split(key, 2), strict=True)
    params = [
        (jax.random.normal(k, (i, o)) * jnp.sqrt(2 / i), jnp.zeros(o))
        for i, o, k in layers
    ]
    adam = optax.adam(3e-3)

    def loss(params, which, z):
        return jnp.mean(jnp.square(generate(params, z) - images[which]))

    def step(state, drawn):
        params, moments = state
        updates, moments = adam.update(jax.grad(loss)(params, *drawn), moments)
        return (optax.apply_updates(params, updates), moments), None

    drawn = latent(jax.random.fold_in(key, 1), len(images), (steps, batch))
    return jax.lax.scan(step, (params, adam.init(params)), drawn)[0][0]


@functools.cache
def samples_of(part):
    """What a generator makes that was fine-tuned on a hundred of these digits."""
    images = digits()[part][:TUNED]
    flat = jnp.asarray(images.reshape(TUNED, -1) / 255, jnp.float32)
    with tiny.quick_compilation():
        params = fine_tuned(flat, jax.random.key(0))
    _, z = latent(jax.random.key(1), TUNED, (SYNTHETIC,))
    made = np.asarray(generate(params, z))
    return np.round(255 * made).astype(np.uint8).reshape(-1, 8, 8, 1)


@pytest.mark.parametrize('attack', BOTH)
def test_samples_that_are_training_images_are_found(tmp_path, attack):
    copies = digits()[0][:SYNTHETIC]
    found = ATTACKS[attack].run(target(tmp_path, copies))
    assert found['found']
    if attack == 'membership':
        assert found['violations'] and found['verdict'].startswith('VIOLATION')
        assert 'more than epsilon = 1 permits' in found['verdict']
    else:
        assert found['verdict'].startswith('FOUND')


def test_what_a_large_epsilon_permits_is_found_but_no_violation(tmp_path):
    copies = digits()[0][:SYNTHETIC]
    found = ATTACKS['membership'].run(target(tmp_path, copies, epsilon=20.0))
    assert found['found'] and not found['violations']
    assert 'Epsilon = 20 permits that much' in found['verdict']


# Of membership the fast tests are those of the command, below.
@pytest.mark.parametrize('attack', QUICKLY)
def test_a_generator_fine_tuned_on_a_hundred_training_images_is_found(tmp_path, attack):
    synthetic = samples_of(0)
    found = ATTACKS[attack].run(target(tmp_path, synthetic))
    assert found['found']


@pytest.mark.parametrize('attack', QUICKLY)
def test_a_generator_fine_tuned_on_strangers_is_not(tmp_path, attack):
    synthetic = samples_of(2)
    found = ATTACKS[attack].run(target(tmp_path, synthetic))
    assert not found['found']


@pytest.fixture(scope='module')
def leaking(tmp_path_factory):
    """A finished run whose samples were replaced, and prepared data of enough digits."""
    folder = tmp_path_factory.mktemp('leaking')
    members, others, _ = digits()
    labels = np.arange(MEMBERS) % 2
    np.savez(
        folder / 'digits.npz',
        train_x=members[..., 0],
        train_y=labels,
        test_x=others[..., 0],
        test_y=labels,
    )
    config = from_config_dict(tiny_runs.one_shot(f'npz:{folder / "digits.npz"}'))
    prepare(config.data, folder / 'data')
    shutil.copytree(tiny_runs.finished('one_shot').workdir, folder / 'run')
    path = folder / 'run' / 'release' / 'config.json'
    stated = json.loads(path.read_text())
    stated['data']['num_examples'] = MEMBERS
    path.write_text(json.dumps(stated))
    Workdir(folder / 'run').fingerprint.unlink()  # of other images
    return folder / 'run', folder / 'data'


@pytest.mark.parametrize('attack', BOTH)
@pytest.mark.parametrize('leaks', [True, False])
def test_the_command_says_it_by_its_exit_status(leaking, attack, leaks):
    workdir, data = leaking
    made = digits()[0 if leaks else 2][:SYNTHETIC]
    np.savez(
        Workdir(workdir).samples, images=made, labels=np.zeros(len(made), np.int32)
    )
    status, out, err = tiny_runs.call(
        __main__.run, 'dpaf_jax.attack', f'--attack={attack}',
        f'--workdir={workdir}', f'--data={data}',
    )  # fmt: skip
    assert status == int(leaks), err
    assert ('FOUND: ' in out) == leaks and ('Nothing found: ' in out) != leaks
