"""Contracts of the figures that compare synthetic images with real ones."""

import numpy as np
import pytest

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.evaluation import fidelity, printout, suite
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.networks.perceptual.batches import Features
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import Teller

pytestmark = pytest.mark.usefixtures('optimised')


def cloud(num: int, size: int = 6, seed: int = 0, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((num, size)) + shift).astype(np.float32)


def features(num: int, **kind) -> Features:
    pooled = cloud(num, **kind)
    return Features(pooled, np.full((num, 4), 0.25, np.float32))


# --- the figures -----------------------------------------------------------------------------


def test_the_frechet_distance_of_known_gaussians():
    """N(0, I) against N(1, 4 I) in D dimensions: D (1 + 1 + 4 - 4)."""
    size, num = 4, 200_000
    real, other = cloud(num, size), 2 * cloud(num, size, seed=1) + 1
    distance = fidelity.frechet_distance(real, other)
    assert distance == pytest.approx(2 * size, rel=0.02)


def test_the_frechet_distance_is_that_of_the_matrix_root():
    scipy_linalg = pytest.importorskip('scipy.linalg')
    rng = np.random.default_rng(0)
    mix = rng.standard_normal((2, 5, 5))
    real, other = cloud(300, 5) @ mix[0], cloud(200, 5, seed=1, shift=0.3) @ mix[1]
    a, b = (np.cov(x, rowvar=False) for x in (real, other))
    root = scipy_linalg.sqrtm(a @ b).real
    means = np.sum((real.mean(0) - other.mean(0)) ** 2)
    wanted = means + np.trace(a + b - 2 * root)
    assert fidelity.frechet_distance(real, other) == pytest.approx(wanted, rel=1e-5)


def test_the_frechet_distance_of_few_images_is_exact():
    """Fewer images than features: the covariances are singular."""
    few = cloud(10, 40)
    assert fidelity.frechet_distance(few, few) == pytest.approx(0, abs=1e-6)
    assert fidelity.frechet_distance(few, few + 1) == pytest.approx(40, rel=1e-4)


def test_the_inception_score_is_between_one_and_the_number_of_classes():
    uniform = np.full((100, 5), 0.2)
    certain = np.eye(5)[np.arange(100) % 5]
    assert fidelity.inception_score(uniform)[0] == pytest.approx(1)
    assert 4 < fidelity.inception_score(certain)[0] <= 5
    assert fidelity.inception_score(np.eye(5)[[2] * 100])[0] == pytest.approx(1)


def by_hand(real, synthetic, k):
    """Kynkäänniemi's precision and recall, one image at a time."""

    def radius(side, i):
        others = np.delete(side, i, axis=0)
        return np.sort(np.linalg.norm(others - side[i], axis=1))[k - 1]

    def share(points, side):
        radii = [radius(side, i) for i in range(len(side))]
        return np.mean(
            [np.any(np.linalg.norm(side - p, axis=1) <= radii) for p in points]
        )

    return share(synthetic, real), share(real, synthetic)


@pytest.mark.parametrize('k', [1, 3, 5])
def test_precision_and_recall_are_those_of_the_definition(k, monkeypatch):
    monkeypatch.setattr(fidelity, 'BLOCK', 7)  # several blocks, the last one partial
    real, synthetic = cloud(40, 3), cloud(30, 3, seed=1, shift=1.5)
    found = fidelity.manifold(real, synthetic, k)
    assert (found.precision, found.recall) == by_hand(real, synthetic, k)
    assert found.precision < 1 and found.recall < 1


def test_real_images_themselves_are_perfect():
    real = cloud(50)
    same = fidelity.manifold(real, real.copy())
    assert same.precision == same.recall == same.coverage == 1
    assert same.density == pytest.approx(1, abs=0.5)


def test_a_few_images_repeated_have_no_recall():
    """What the Fréchet distance alone would let pass."""
    real = cloud(200)
    found = fidelity.manifold(real, np.repeat(cloud(200)[:10], 20, axis=0))
    assert found.precision == 1
    assert found.recall <= 10 / 200
    assert found.coverage < 0.5


def test_images_far_away_have_no_precision():
    far = fidelity.manifold(cloud(60), cloud(60, seed=1, shift=100))
    assert far == (0, 0, 0, 0)


def test_the_figures_have_their_names_and_numbers():
    found = fidelity.compare(features(60), features(50, seed=1))
    assert list(found) == [
        'fd_efficientnet_lite0', 'precision', 'recall', 'density', 'coverage',
        'is_efficientnet_lite0', 'is_std', 'num_real', 'num_synthetic',
    ]  # fmt: skip
    assert (found['num_real'], found['num_synthetic']) == (60, 50)
    assert all(type(value) in (int, float) for value in found.values())


def inception_weights(monkeypatch, is_published):
    """Weights whose features are the pixels; probabilities are of two classes."""

    def seen(weights, images, on_batch):
        on_batch(len(images))
        pixels = images.reshape(len(images), -1).astype('f4')
        one = (pixels.mean(axis=1, keepdims=True) > 127).astype('f4')
        return Features(pixels, np.hstack([one, 1 - one]))

    monkeypatch.setattr(fidelity.inception, 'features', seen)
    digest = fidelity.inception.SHA256 if is_published else 'of others'
    return fidelity.inception.Weights({}, digest)


def images_of(num, seed):
    return np.random.default_rng(seed).integers(0, 256, (num, 2, 2, 1), np.uint8)


@pytest.mark.parametrize('is_installed', [True, False])
def test_fid_stands_beside_the_other_figures_or_alone(is_installed, monkeypatch):
    monkeypatch.setattr(fidelity.efficientnet, 'is_installed', lambda: is_installed)
    monkeypatch.setattr(
        fidelity.efficientnet, 'features', lambda images, _: features(len(images))
    )
    weights = inception_weights(monkeypatch, is_published=True)
    real, made = images_of(40, 0), images_of(30, 1)
    found = fidelity.evaluate(fidelity.Reference(real, weights), made, 1000)
    pixels = [side.reshape(len(side), 4).astype('f4') for side in (real, made)]
    assert found['fid'] == fidelity.frechet_distance(*pixels)
    assert 1 < found['inception_score'] < 2 and found['inception_score_std'] > 0
    assert ('fd_efficientnet_lite0' in found) == is_installed
    assert (found['num_real'], found['num_synthetic']) == (40, 30)
    assert 'rests on 30 synthetic images, fewer than the 2048' in fidelity.few_images(
        found
    )
    assert 'fid' not in fidelity.evaluate(fidelity.Reference(real), made, 1000)


def test_what_networks_see_of_real_images_is_kept_for_the_next_comparison(monkeypatch):
    """The ceiling and FID of a slow network need a third less time."""
    monkeypatch.setattr(fidelity.efficientnet, 'is_installed', lambda: False)
    weights, steps = inception_weights(monkeypatch, is_published=True), []
    reference = fidelity.Reference(images_of(40, 0), weights)
    for seed, to_see in ((1, 60), (2, 30)):
        assert reference.num_to_see(30) == to_see
        made = images_of(30, seed)
        found = fidelity.evaluate(reference, made, 30, 3, steps.append)
        assert steps[-1] == to_see
        alone = fidelity.Reference(images_of(40, 0), weights)
        assert found == fidelity.evaluate(alone, made, 30)
    assert steps == [30, 60, 30]


def test_figures_of_other_weights_are_called_so(monkeypatch):
    weights = inception_weights(monkeypatch, is_published=False)
    monkeypatch.setattr(fidelity.efficientnet, 'is_installed', lambda: False)
    reference = fidelity.Reference(images_of(40, 0), weights)
    found = fidelity.evaluate(reference, images_of(30, 1), 30)
    assert set(found) == {
        'fid_other_weights', 'inception_score_other_weights',
        'inception_score_std_other_weights', 'num_real', 'num_synthetic',
    }  # fmt: skip
    monkeypatch.setattr(suite.inception, 'load', lambda path: weights)
    side, told = Labelled(images_of(40, 0), np.zeros(40, np.int32)), []
    config = EvaluationConfig(inception_weights='w.pth')
    config = suite.alike(config, side, side)
    measured = suite.Suite(side, 1, config).evaluate(side, Teller(told.append))
    assert 'fid_other_weights' in measured['fidelity']
    assert 'no FID: the Inception weights are not the published' in told[-1]
    shown = printout.table({'synthetic': measured, 'notices': []})
    assert 'Fréchet distance, Inception, other weights' in shown
    assert '  FID ' not in shown and 'EfficientNet-Lite0 (not FID)' not in shown


def test_a_missing_file_of_weights_is_found_before_anything_is_measured(tmp_path):
    config = EvaluationConfig(inception_weights=str(tmp_path / 'none.pth'))
    side = Labelled(images_of(30, 0), np.arange(30) % 2)
    with pytest.raises(UserError, match='none.pth: cannot be read'):
        suite.Suite(side, 2, config)


def test_too_few_images_are_refused():
    with pytest.raises(ValueError, match='19 synthetic images'):
        fidelity.compare(features(60), features(19))


def test_a_suite_goes_without_fidelity_where_images_are_too_few(monkeypatch):
    """The end of a run is no place to stop for want of eight test images."""
    monkeypatch.setattr(suite.efficientnet, 'is_installed', lambda: True)
    pixels, labels = np.zeros((12, 8, 8, 1), np.uint8), np.zeros(12, np.int32)
    told = []
    side = Labelled(pixels, labels)
    config = suite.alike(EvaluationConfig(), side, side)
    made = suite.Suite(side, 1, config).evaluate(side, Teller(told.append))
    assert made == {'utility': {}, 'fidelity': {}}
    assert told == ['no fidelity: 12 images of each side are too few: it needs 20']


def test_few_real_training_images_cost_the_ceiling_its_fidelity_alone(monkeypatch):
    monkeypatch.setattr(fidelity.efficientnet, 'is_installed', lambda: False)
    weights = inception_weights(monkeypatch, is_published=True)
    monkeypatch.setattr(suite, 'inception_weights', lambda config: weights)
    made, test = (
        Labelled(images_of(40, seed), np.zeros(40, np.int32)) for seed in (0, 1)
    )
    measured = suite.Suite(test, 1, suite.alike(EvaluationConfig(), made, test))
    told = []
    teller = Teller(told.append)
    assert measured.evaluate(made, teller)['fidelity']['num_synthetic'] == 40
    few = Labelled(made.images[:25], made.labels[:25])
    assert measured.evaluate(few, teller)['fidelity'] == {}
    assert told == [
        'no fidelity: there are 25 images, and 40 of each side are compared'
    ]


def test_the_images_that_are_compared_are_the_same_every_time():
    images = np.arange(100).reshape(100, 1, 1, 1)
    first, again = fidelity.drawn(images, 30), fidelity.drawn(images, 30)
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first)) == 30
    np.testing.assert_array_equal(fidelity.drawn(images, 200), images)
