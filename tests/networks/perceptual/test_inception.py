"""The InceptionV3 of FID: features, what is asked of a file of weights, how images enter."""

import hashlib
import pathlib
import zlib

import numpy as np
import pytest
import safetensors.numpy

from dpaf_jax.networks.perceptual import inception
from dpaf_jax.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures('optimised')

# golden.npz: by torch 2.14.1 and pytorch_fid 0.3.0, whose `fid_inception_v3` was given the
# tensors of `made_up` in place of the download. Images were divided by 255 as `ToTensor` does,
# grey repeated; probabilities are the softmax of pooled @ fc.weight.T.
GOLDEN = pathlib.Path(__file__).parents[2] / 'fixtures' / 'inception' / 'golden.npz'


def made_up(name, shape):
    """A tensor that anybody can make again: NumPy never changes what RandomState draws."""
    seed = zlib.crc32(name.encode())
    values = np.random.RandomState(seed).random_sample(shape) - 0.5
    if name.endswith(('bn.weight', 'bn.running_var')):
        return (1 + values).astype('f4')
    if len(shape) == 1:
        return (values / 10).astype('f4')
    inner = tuple(range(1, len(shape)))
    values -= values.mean(axis=inner, keepdims=True)  # else all images look alike
    return (values * np.sqrt(30 / np.prod(shape[1:]))).astype('f4')


@pytest.fixture(scope='module')
def weights():
    tensors = {name: made_up(name, s) for name, s in inception.shapes().items()}
    return inception.Weights(inception.folded(tensors), 'of nothing')


def pattern(side, channels):
    n = np.arange(side * side * channels)
    return (n * n % 251).astype(np.uint8).reshape(1, side, side, channels)


@pytest.mark.parametrize('name,images', [('grey', (28, 1)), ('colour', (40, 3))])
def test_features_are_those_of_the_torch_network(name, images, weights):
    found = inception.features(weights, pattern(*images))
    with np.load(GOLDEN) as golden:
        for part in ('pooled', 'probabilities'):
            wanted = golden[f'{name}_{part}']
            (seen,) = getattr(found, part)
            assert seen.shape == wanted.shape
            np.testing.assert_allclose(seen, wanted, atol=1e-3 * wanted.std())


def test_features_are_those_of_each_image_alone(weights, monkeypatch):
    """Batch by batch; the last one is filled up and cut."""
    seen = []

    def forward(params, images):
        seen.append(images.shape)
        return images[:, 0, 0], images[:, 1, 1]

    monkeypatch.setattr(inception, 'forward', forward)
    monkeypatch.setattr(inception, 'BATCH_ON_CPU', 4)
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)
    found = inception.features(weights, images)
    assert seen == [(4, 299, 299, 3)] * 2 and found.pooled.shape == (6, 3)
    alone = [inception.features(weights, image[None]).pooled[0] for image in images]
    np.testing.assert_allclose(found.pooled, alone, atol=1e-5)


@pytest.mark.parametrize('side', [20, 299, 320])
def test_images_are_resized_as_torch_does_by_default(side):
    """Half-pixel centres, edges repeated, and no antialiasing where sides shrink."""
    image = np.random.default_rng(0).integers(0, 256, (side, side, 1), np.uint8)
    at = (np.arange(299) + 0.5) * side / 299 - 0.5
    places, wide = np.arange(side), image[..., 0] / 127.5 - 1
    wide = np.stack([np.interp(at, places, row) for row in wide])
    wanted = np.stack([np.interp(at, places, column) for column in wide.T], axis=1)
    found = np.asarray(inception.resized(image[None]))
    assert found.shape == (1, 299, 299, 3)
    np.testing.assert_allclose(found[0], np.repeat(wanted[..., None], 3, 2), atol=2e-4)
    floats = (image[None] / 127.5 - 1).astype('f4')
    np.testing.assert_allclose(inception.resized(floats), found, atol=1e-5)


def test_only_grey_and_colour_have_features(weights):
    with pytest.raises(UserError, match='2 channels'):
        inception.features(weights, np.zeros((1, 8, 8, 2), np.uint8))


# --- a file of weights -----------------------------------------------------------------------


def test_the_tensors_that_are_read_are_those_of_torchs_network():
    shapes = inception.shapes()
    assert len(shapes) == 94 * 5 + 1
    assert sum(map(np.prod, shapes.values())) == 23_884_384
    assert shapes['Mixed_7c.branch3x3dbl_3b.conv.weight'] == (384, 384, 3, 1)
    assert shapes['Mixed_6d.branch_pool.conv.weight'] == (192, 768, 1, 1)


def of_first_layer(monkeypatch):
    """The tensors of a network of one layer, which small files can hold."""
    shapes = {
        name: shape
        for name, shape in inception.shapes().items()
        if name.startswith('Conv2d_1a_3x3')
    }
    shapes['fc.weight'] = (2, 3)
    monkeypatch.setattr(inception, 'shapes', lambda: shapes)
    return {name: made_up(name, shape) for name, shape in shapes.items()}


def written(path, tensors):
    path.write_bytes(safetensors.numpy.save(tensors))
    return str(path)


def test_weights_are_known_by_their_checksum(tmp_path, monkeypatch):
    tensors = of_first_layer(monkeypatch) | {'fc.bias': np.zeros(2, 'f4')}
    path = written(tmp_path / 'w.safetensors', tensors)
    other = inception.load(path)
    assert not other.are_published
    kernel, bias = other.params['Conv2d_1a_3x3']
    assert kernel.shape == (3, 3, 3, 32) and bias.shape == (32,)
    inception.load.cache_clear()
    digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    monkeypatch.setattr(inception, 'SHA256', digest)
    assert inception.load(path).are_published
    assert inception.FILE.partition('.')[0].endswith('-6726825d')


def test_a_file_that_is_not_there_is_named_with_where_it_comes_from(tmp_path):
    with pytest.raises(UserError, match=r'nothing\.pth: cannot be read') as caught:
        inception.load(str(tmp_path / 'nothing.pth'))
    assert inception.URL in str(caught.value) and inception.FILE in inception.URL


@pytest.mark.parametrize(
    'content', [b'', b'other weights', b'PK\x03\x04 and no archive', b'\x08' * 8 + b'{']
)
def test_a_file_of_something_else_is_refused(content, tmp_path):
    path = tmp_path / 'w.pth'
    path.write_bytes(content)
    with pytest.raises(UserError, match='holds no weights of the InceptionV3 of FID'):
        inception.load(str(path))


def test_a_file_of_another_network_says_what_is_missing(tmp_path, monkeypatch):
    tensors = of_first_layer(monkeypatch)
    short = {n: t for n, t in tensors.items() if not n.endswith('running_var')}
    with pytest.raises(UserError, match='1 of its 6 tensors are missing, Conv2d_1a'):
        inception.load(written(tmp_path / 'short', short))
    other = tensors | {'fc.weight': np.zeros((1, 3), 'f4')}
    with pytest.raises(
        UserError, match=r'fc.weight is of shape \(1, 3\), not \(2, 3\)'
    ):
        inception.load(written(tmp_path / 'other', other))
