"""A small network that has learnt from dead leaves: random shapes, no photograph among them.

It tells whether two pictures show one made-up object, which is a few blobs of flat or striped
colour, drawn in another pose, light and ground each time (`python -m experiments.dead_leaves`
makes the pictures and the weights). So it knows edges, parts and what belongs together, and
nothing that anybody owns: whoever uses it uses no public data. Features from random processes:
Baradad et al. 2021; under differential privacy: Tang et al. 2023 (DP-RandP).
"""

import functools
import hashlib
import pathlib
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from dpaf_jax.networks.layers import NUMBERS, convolve_image
from dpaf_jax.runtime.errors import UserError

FILE = pathlib.Path(__file__).with_name('leaves.safetensors')
SHA256 = '15839fdd2e6f461fcb2bfa8d5344f58a07fc0bd9bb652f0637343c19a75c69fe'
# Maps, sides of kernels and strides of the layers; those that are read, and how far down.
LAYERS = ((32, 5, 2), (48, 3, 1), (64, 3, 2), (96, 3, 1), (128, 3, 2), (192, 3, 1))
READ, STAGES = (1, 3, 5), ((48, 2), (96, 4), (192, 8))

Params = dict[str, Any]  # arrays


@functools.cache
def load_params() -> Params:
    """The weights that the package ships: of each layer a kernel [k, k, in, out], a bias.

    Raises:
        UserError: the file is another one.
    """
    content = FILE.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise UserError(str(FILE), 'is another file', 'Install the package again')
    tensors = safetensors.numpy.load(content)
    return {name: value.astype(np.float32) for name, value in tensors.items()}


def stages(params: Params, images: jax.Array) -> list[jax.Array]:
    """The maps behind each layer of `READ`.

    Args:
        params: of `load_params`.
        images: [B, H, W, 1 or 3] float32 in [-1, 1]; grey is repeated.

    Returns:
        For each of `STAGES` [B, H / d, W / d, width].
    """
    x = convolve_image(images, params['kernel0']) + params['bias0']
    maps = []
    for layer, (_, _, stride) in enumerate(LAYERS[1:], 1):
        x = jax.lax.conv_general_dilated(
            jax.nn.relu(x),
            params[f'kernel{layer}'],
            (stride, stride),
            'SAME',
            dimension_numbers=NUMBERS,
        )
        x = x + params[f'bias{layer}']
        if layer in READ:
            maps.append(jax.nn.relu(x))
    return maps
