"""Gradient inversion: what each strategy shows, and who recovers an image from it."""

import json

import jax
import numpy as np
import pytest
import tiny_runs

from dpaf_jax.attack import gradient_inversion as inversion
from dpaf_jax.attack.gradient_inversion_pictures import heat_maps
from dpaf_jax.attack.target import Target

pytestmark = pytest.mark.usefixtures('optimised')

CLASSES = 3


@pytest.fixture(scope='module')
def scenes():
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(20, 6, 6, 1), dtype=np.uint8)
    return inversion.train(images, np.arange(20) % CLASSES, 4)


def gradients_of(scenes, i=0):
    one = jax.tree.map(lambda x: x[i], scenes)
    return one, np.asarray(jax.jit(lambda s: inversion.terms(s, CLASSES))(one))


def test_the_two_terms_are_cross_entropys(scenes):
    scene, gradients = gradients_of(scenes)

    def loss(params):
        z = inversion._logits(params, scene.image, CLASSES)
        return -jax.nn.log_softmax(z)[scene.label]

    expected = jax.jit(jax.grad(loss))(scene.params)
    np.testing.assert_allclose(gradients.sum(axis=0), expected, atol=1e-5)


def test_training_descends_by_the_gradient_that_is_attacked(scenes):
    _, gradients = gradients_of(scenes)
    moved = np.asarray(scenes.params[1] - scenes.params[0])
    np.testing.assert_allclose(moved, -inversion.RATE * gradients.sum(0), atol=1e-5)


def outside(seen, rows):
    """Share of `seen` that lies outside the span of `rows`."""
    basis = np.linalg.svd(rows, full_matrices=False)[2]
    return np.linalg.norm(seen - (seen @ basis.T) @ basis) / np.linalg.norm(seen)


@pytest.mark.parametrize('strategy', inversion.STRATEGIES)
def test_noise_on_a_cost_keeps_to_the_span_of_its_terms(scenes, strategy):
    _, gradients = gradients_of(scenes)
    rng = np.random.default_rng(3)
    seen = [inversion.observed(strategy, gradients, rng) for _ in range(8)]
    whole = gradients.sum(axis=0)
    along = [outside(s, whole[None]) for s in seen]
    if strategy in ('none', 'fixed', 'dynamic'):
        assert max(along) < 1e-4
    else:
        assert min(along) > 1e-3
    in_span = max(outside(s, gradients) for s in seen) < 1e-4
    assert in_span == (strategy != 'certified')
    assert np.ptp([np.linalg.norm(s) for s in seen]) > 0 or strategy == 'none'


def test_certified_is_the_clipped_gradient_and_noise_of_the_bound():
    large = np.full((2, 40_000), 3.0, np.float32)
    seen = inversion.observed('certified', large, np.random.default_rng(0))
    assert np.std(seen) == pytest.approx(inversion.CLIP, rel=0.02)
    assert abs(np.mean(seen) - inversion.CLIP / 200) < 0.02  # a norm of 1, not of 1200


@pytest.mark.slow
def test_published_noise_hides_no_image_from_who_fits_the_span(scenes):
    found = {
        (strategy, attacker): inversion.attack(
            scenes, CLASSES, strategy, attacker, 150
        )
        for strategy, attacker in [
            ('none', 'as printed'), ('bilateral', 'span'), ('certified', 'span'),
        ]
    }  # fmt: skip
    plain = found['none', 'as printed']
    assert plain.fitted.shape == (4, 150)
    assert np.all(plain.fitted[:, -1] < plain.fitted[:, 0] / 100)
    assert np.all(plain.error < inversion.RECOVERED)
    assert np.all(found['bilateral', 'span'].error < inversion.RECOVERED)
    assert np.all(found['certified', 'span'].error > inversion.RECOVERED)


@pytest.mark.slow
def test_everything_is_written_under_not_private(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(20, 6, 6, 1), dtype=np.uint8)
    labels = np.arange(20, dtype=np.int32) % CLASSES
    labels[-1] = CLASSES  # that few iterations do not draw
    target = Target(images, images, labels, images, {}, tmp_path / 'attacks')
    made = inversion.run(target, 2, 3)
    assert set(made['strategies']) == set(inversion.STRATEGIES)
    for figures in made['strategies'].values():
        assert figures['success'] + figures['failure'] == 2
    assert 'anti-attack rate' in inversion.table(made)
    names = {path.name for path in (tmp_path / 'attacks').iterdir()}
    assert names == {
        'NOT_PRIVATE.txt', 'gradient_inversion_NOT_PRIVATE.json',
        'gradient_inversion_fits_NOT_PRIVATE.png',
        'gradient_inversion_images_NOT_PRIVATE.png',
    }  # fmt: skip
    path = tmp_path / 'attacks' / 'gradient_inversion_NOT_PRIVATE.json'
    assert json.loads(path.read_text())['warning'].startswith('NOT PRIVATE')


def test_a_map_is_blue_where_the_gradient_is_fitted():
    values = np.array([[1e-3, 1e3], [1e-3, 1e3]])
    page = np.asarray(heat_maps({'none': values}, 1.0)).astype(int)
    left, right = page[180, 200], page[180, 800]
    assert left[2] > left[0] and right[0] > right[2]


@pytest.mark.slow
def test_the_command_takes_smaller_counts(tmp_path):
    from dpaf_jax.attack import __main__ as attack

    workdir = tiny_runs.finished('one_shot').workdir
    status, out, error = tiny_runs.call(
        attack.run, 'dpaf_jax.attack', '--attack=gradient_inversion',
        f'--workdir={workdir}', '--iterations=2', '--attempts=2',
    )  # fmt: skip
    assert (status, error) == (0, '') and '2 iterations, 2 attempts' in out
