"""The InceptionV3 of FID and Inception score, in JAX.

It is the network of TensorFlow's `inception-2015-12-05`, which both measures were defined by.
Three things tell it from other InceptionV3: average pools do not count what they are padded
with, the last block takes a maximum in place of an average, and there are 1008 classes. The
file of its weights is that of pytorch-fid. It is not ours to ship: whoever has it names it.

The Inception score's probabilities are a softmax over all 1008 logits, without their bias. So
had it the first implementation (Salimans et al. 2016), and so have it torch-fidelity and
StyleGAN2-ADA; the bias in the file is not read.

Architecture: Szegedy et al. 2016, table 1 and figures 5 to 7 and 10, with the three changes of
pytorch-fid's `fid_inception_v3`.
"""

import functools
import hashlib
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from dpaf_jax.networks.perceptual import batches
from dpaf_jax.networks.perceptual.batches import Features
from dpaf_jax.networks.perceptual.torch_file import read_tensors
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import ProgressFn

FILE = 'pt_inception-2015-12-05-6726825d.pth'
SHA256 = '6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2'
URL = f'https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/{FILE}'
REMEDY = f'Download {URL} (of the pytorch-fid project) and give its path'
SIDE = 299  # pixels of the network's input
CLASSES, WIDTH = 1008, 2048  # of the last layer
BATCH_ON_CPU, BATCH = 8, 100
PRECISION = 'highest'  # a figure must not depend on the device
EPSILON = 1e-3  # of the batch normalisation
NORM = 'weight', 'bias', 'running_mean', 'running_var'

# --- the network as data ---------------------------------------------------------------------

# A branch is its steps, one after the other. A step is a convolution ('name maps kernel'), a
# pool of 3 x 3, or two branches side by side (|). Behind / stands the stride of what is not
# padded; all else is, and has stride 1.
A = (
    'branch1x1 64 1x1',
    'branch5x5_1 48 1x1, branch5x5_2 64 5x5',
    'branch3x3dbl_1 64 1x1, branch3x3dbl_2 96 3x3, branch3x3dbl_3 96 3x3',
    'mean, branch_pool {} 1x1',
)
B = (
    'branch3x3 384 3x3/2',
    'branch3x3dbl_1 64 1x1, branch3x3dbl_2 96 3x3, branch3x3dbl_3 96 3x3/2',
    'max/2',
)
C = (
    'branch1x1 192 1x1',
    'branch7x7_1 {0} 1x1, branch7x7_2 {0} 1x7, branch7x7_3 192 7x1',
    'branch7x7dbl_1 {0} 1x1, branch7x7dbl_2 {0} 7x1, branch7x7dbl_3 {0} 1x7, '
    'branch7x7dbl_4 {0} 7x1, branch7x7dbl_5 192 1x7',
    'mean, branch_pool 192 1x1',
)
D = (
    'branch3x3_1 192 1x1, branch3x3_2 320 3x3/2',
    'branch7x7x3_1 192 1x1, branch7x7x3_2 192 1x7, branch7x7x3_3 192 7x1, '
    'branch7x7x3_4 192 3x3/2',
    'max/2',
)
E = (
    'branch1x1 320 1x1',
    'branch3x3_1 384 1x1, branch3x3_2a 384 1x3 | branch3x3_2b 384 3x1',
    'branch3x3dbl_1 448 1x1, branch3x3dbl_2 384 3x3, '
    'branch3x3dbl_3a 384 1x3 | branch3x3dbl_3b 384 3x1',
    '{}, branch_pool 192 1x1',
)
STEM = (
    'Conv2d_1a_3x3 32 3x3/2, Conv2d_2a_3x3 32 3x3/1, Conv2d_2b_3x3 64 3x3, max/2, '
    'Conv2d_3b_1x1 80 1x1, Conv2d_4a_3x3 192 3x3/1, max/2'
)
# Name, branches, and what stands in their braces; sides are 35, 17 and 8.
BLOCKS: tuple[tuple[str, tuple[str, ...], int | str], ...] = (
    ('Mixed_5b', A, 32),
    ('Mixed_5c', A, 64),
    ('Mixed_5d', A, 64),
    ('Mixed_6a', B, ''),
    ('Mixed_6b', C, 128),
    ('Mixed_6c', C, 160),
    ('Mixed_6d', C, 160),
    ('Mixed_6e', C, 192),
    ('Mixed_7a', D, ''),
    ('Mixed_7b', E, 'mean'),
    ('Mixed_7c', E, 'max'),
)

Layer = tuple[jax.Array, jax.Array]  # kernel [h, w, in, out], its bias [out]
LayerFn = Callable[[str, tuple[int, ...]], Layer]  # of a name and its kernel's shape


def _network(x: jax.Array, layer: LayerFn) -> jax.Array:
    """[B, 299, 299, 3] -> [B, 8, 8, 2048]."""
    x = _branch(STEM, x, layer, '')
    for name, branches, part in BLOCKS:
        ends = [_branch(b.format(part), x, layer, f'{name}.') for b in branches]
        x = jnp.concatenate(ends, axis=-1)
    return x


def _branch(steps: str, x: jax.Array, layer: LayerFn, inside: str) -> jax.Array:
    for step in steps.split(', '):
        if ' | ' in step:
            sides = [_branch(side, x, layer, inside) for side in step.split(' | ')]
            x = jnp.concatenate(sides, axis=-1)
            continue
        *named, last = step.split()
        what, _, stride = last.partition('/')
        how = ((int(stride or 1),) * 2, 'VALID' if stride else 'SAME')
        if named:
            name, maps = named
            shape = (*map(int, what.split('x')), x.shape[-1], int(maps))
            x = _conv(x, layer(inside + name, shape), *how)
        else:
            x = _pool(x, what, *how)
    return x


def _conv(
    x: jax.Array, layer: Layer, strides: tuple[int, ...], padding: str
) -> jax.Array:
    kernel, bias = layer
    numbers = ('NHWC', 'HWIO', 'NHWC')
    made = jax.lax.conv_general_dilated(
        x, kernel, strides, padding, dimension_numbers=numbers, precision=PRECISION
    )
    return jax.nn.relu(made + bias)


def _pool(x: jax.Array, what: str, strides: tuple[int, ...], padding: str) -> jax.Array:
    window = (1, 3, 3, 1), (1, *strides, 1), padding
    if what == 'max':
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *window)
    there = jnp.ones((1, *x.shape[1:3], 1), x.dtype)  # not what is padded
    total, count = (
        jax.lax.reduce_window(y, 0.0, jax.lax.add, *window) for y in (x, there)
    )
    return total / count


# --- its weights -----------------------------------------------------------------------------


class Weights(NamedTuple):
    """Those of one file.

    Attributes:
        params: by a layer's name its kernel and bias, the normalisation folded in; 'fc': the
            last kernel, [2048, 1008].
        sha256: of the file.
    """

    params: dict[str, Any]
    sha256: str

    @property
    def are_published(self) -> bool:
        """Whether FID and Inception score are of these weights, to the last bit."""
        return self.sha256 == SHA256


@functools.cache
def shapes() -> dict[str, tuple[int, ...]]:
    """The tensors that are read, by torch's names."""
    found: dict[str, tuple[int, ...]] = {'fc.weight': (CLASSES, WIDTH)}

    def layer(name: str, shape: tuple[int, ...]) -> Layer:
        *kernel, before, maps = shape
        found[f'{name}.conv.weight'] = (maps, before, *kernel)
        found.update({f'{name}.bn.{part}': (maps,) for part in NORM})
        return jnp.zeros(shape), jnp.zeros(maps)

    images = jax.ShapeDtypeStruct((1, SIDE, SIDE, 3), jnp.float32)
    jax.eval_shape(lambda x: _network(x, layer), images)
    return found


@functools.lru_cache(maxsize=1)
def load(path: str) -> Weights:
    """Reads a file of weights; nothing in it is executed.

    Args:
        path: of pytorch-fid's file, or of a torch or safetensors file with tensors of the
            same names and shapes; others in it are not looked at.

    Raises:
        UserError: it is not there, or is no such file.
    """
    try:
        content = pathlib.Path(path).expanduser().read_bytes()
    except OSError as error:
        problem = f'cannot be read: {error.strerror}'
        raise UserError(path, problem, REMEDY) from error
    try:
        is_torch = content[8:9] != b'{'  # with which the head of safetensors begins
        tensors = (read_tensors if is_torch else safetensors.numpy.load)(content)
    except (ValueError, KeyError, safetensors.SafetensorError) as error:
        why = str(error).rstrip('.')
        problem = f'holds no weights of the InceptionV3 of FID: {why}'
        raise UserError(path, problem, REMEDY) from error
    if wrong := _wrong(tensors):
        problem = f'holds no weights of the InceptionV3 of FID: {wrong}'
        raise UserError(path, problem, REMEDY)
    return Weights(folded(tensors), hashlib.sha256(content).hexdigest())


def _wrong(tensors: dict[str, np.ndarray]) -> str:
    """What is missing or of another shape; '' where nothing is."""
    needed = shapes()
    if missing := [name for name in needed if name not in tensors]:
        count = f'{len(missing)} of its {len(needed)} tensors are missing'
        return f'{count}, {missing[0]} first'
    for name, shape in needed.items():
        if tensors[name].shape != shape:
            return f'{name} is of shape {tensors[name].shape}, not {shape}'
    return ''


def folded(tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """Turns torch's tensors, by the names of `shapes`, into layers."""
    made: dict[str, Any] = {'fc': tensors['fc.weight'].T.astype('f4')}
    for name in shapes():
        layer, is_conv, _ = name.partition('.conv.')
        if not is_conv:
            continue
        scale, bias, mean, variance = (tensors[f'{layer}.bn.{part}'] for part in NORM)
        scale = scale / np.sqrt(variance + EPSILON)
        kernel = tensors[name].transpose(2, 3, 1, 0) * scale
        made[layer] = kernel.astype('f4'), (bias - mean * scale).astype('f4')
    return made


# --- features --------------------------------------------------------------------------------


def features(
    weights: Weights, images: np.ndarray, on_batch: ProgressFn = lambda num: None
) -> Features:
    """Passes images through the network.

    Args:
        weights: as `load` has them.
        images: [N, H, W, C], N >= 1; uint8 in [0, 255] or float32 in [-1, 1]. Grey (C = 1)
            is repeated to three channels. Any H and W: resized to 299 x 299 linearly, with
            half-pixel centres and without antialiasing, as pytorch-fid does.
        on_batch: given how many images each batch has.

    Returns:
        `Features` in the order of the images: `pooled` [N, 2048] float32, which FID compares,
        and `probabilities` [N, 1008] float32, of which the Inception score is.

    Raises:
        UserError: C is neither 1 nor 3.
    """
    params = jax.device_put(weights.params)
    size = BATCH_ON_CPU if jax.default_backend() == 'cpu' else BATCH
    return batches.features(
        lambda batch: forward(params, resized(batch)),
        images,
        size,
        'InceptionV3',
        on_batch,
    )


@jax.jit
def resized(images: jax.Array) -> jax.Array:
    """[B, H, W, 1 or 3], uint8 or in [-1, 1] -> [B, 299, 299, 3] float32 in [-1, 1]."""
    x = images.astype(jnp.float32)
    x = x / 127.5 - 1 if images.dtype == jnp.uint8 else x
    shape = len(x), SIDE, SIDE, x.shape[-1]
    x = jax.image.resize(x, shape, 'linear', antialias=False)
    return jnp.broadcast_to(x, (*shape[:-1], 3))


@jax.jit
def forward(params: dict[str, Any], images: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[B, 299, 299, 3] in [-1, 1] -> pooled [B, 2048], probabilities [B, 1008]."""
    pooled = _network(images, lambda name, _: params[name]).mean(axis=(1, 2))
    logits = jnp.matmul(pooled, params['fc'], precision=PRECISION)
    return pooled, jax.nn.softmax(logits)
