"""The layer notation: how many convolutions each part has, and what follows for sizes.

'C2-C1-x' gives the number of convolutions of conv1, conv2* and conv3* (DPAF, preprint
section 6.1). Each halves the side. Nothing, '', lets the image's size decide.
"""

import dataclasses
import math
import re

from dpaf_jax.config import Config
from dpaf_jax.runtime.errors import UserError

SLOPE = 0.2  # of the leaky ReLU; the papers only say that it is leaky
INNER_SIDE = 8  # to which layers halve an image that may decide their number


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Sizes and widths that follow from the layer notation and the image.

    Attributes:
        parts: number of convolutions in conv1, conv2*, conv3*.
        sides: image side before each layer, and after the last: len = sum(parts) + 1.
        widths: feature maps behind each layer: len = sum(parts).
    """

    parts: tuple[int, int, int]
    sides: tuple[int, ...]
    widths: tuple[int, ...]

    def side(self, part: int) -> int:
        """Side of the maps behind the `part`-th part (1-based)."""
        return self.sides[sum(self.parts[:part])]

    def maps(self, part: int) -> int:
        """Number of maps behind the `part`-th part (1-based)."""
        return self.widths[sum(self.parts[:part]) - 1]


def make_architecture(config: Config) -> Architecture:
    """Checks the notation against the image size.

    Raises:
        UserError: malformed notation, no conv1 or conv2*, or a 1 x 1 map at DPAGG.
    """
    where, size = 'config.networks.layers', config.data.image_size
    notation = config.networks.layers or _by_size(size)
    match = re.fullmatch(r'C(\d+)-C(\d+)-(?:C(\d+)|[x×])', notation)
    if not match:
        raise UserError(
            where, f'is {notation!r}', "Write it like 'C2-C1-x' or 'C2-C2-C1'"
        )
    parts = (int(match[1]), int(match[2]), int(match[3] or 0))
    if parts[0] < 1 or parts[1] < 1:
        raise UserError(where, f'is {notation!r}', 'conv1 and conv2 need a layer each')
    sides = [size]
    for _ in range(sum(parts)):
        sides.append(-(-sides[-1] // 2))
    if sides[parts[0] + parts[1]] < 2 or (parts[2] and sides[-2] < 2):
        raise UserError(
            where,
            f'is {notation!r}, which shrinks {size} x {size} images to one pixel: '
            f'{" -> ".join(map(str, sides))}',
            'Use fewer layers or larger images; a map of one pixel carries nothing',
        )
    net = config.networks
    widths = [min(net.width * 2**i, net.max_width) for i in range(sum(parts))]
    return Architecture(parts, tuple(sides), tuple(widths))


def _by_size(image_size: int) -> str:
    halvings = math.ceil(math.log2(image_size / INNER_SIDE))
    return f'C{max(halvings - 1, 1)}-C1-x'
