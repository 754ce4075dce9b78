"""A ConvNet that is never trained: random features whose means say what a class looks like.

Zhao and Bilen 2023, "Dataset condensation with distribution matching": the network of that
line of papers, without its classifier.
"""

import flax.linen as nn
import jax

from dpaf_jax.networks.instance_norm import simplified_instance_norm
from dpaf_jax.networks.layers import convolve_by_shape


class Extractor(nn.Module):
    """Convolutions of 3 x 3, each with SIN, ReLU and means over squares of two pixels a side.

    Attributes:
        width: feature maps of every layer.
        depth: layers; each halves the side, rounded down.
    """

    width: int
    depth: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """[B, H, W, C] images in [-1, 1] to features [B, F], each of its own image alone."""
        maps = images
        for _ in range(self.depth):
            # SIN takes away what a bias would add.
            maps = nn.Conv(
                self.width,
                (3, 3),
                use_bias=False,
                conv_general_dilated=convolve_by_shape,
            )(maps)
            maps = nn.relu(simplified_instance_norm(maps))
            maps = nn.avg_pool(maps, (2, 2), strides=(2, 2))
        return maps.reshape(len(maps), -1)
