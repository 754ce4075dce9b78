"""DPGEN's network: a denoiser of every noise level, from which the score follows.

score(x, sigma) = (D(x, sigma) - x) / sigma^2, the gradient of log q in DPGEN's equations
3-7. The shape is NCSNv2's RefineNet (Song and Ermon 2020): residual blocks at several
scales, then refinements from the coarsest scale up, each a fusion with the finer maps, a
chained residual pooling and a residual block. Level and class modulate every block; at
the coarsest scale each class has a map of its own.

Normalisation acts within one example: no statistic of a batch comes near a clip. The
network's inputs and outputs are scaled by the level alone (Karras et al. 2022, Table 1),
with a public constant in place of the data's standard deviation.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.networks.images import averaged
from dpaf_jax.networks.layers import convolve, convolve_by_products
from dpaf_jax.runtime.errors import UserError

SIGMA_DATA = 0.5  # public: never measured on data
FREQUENCIES = 8  # of the noise level's features
UNLABELLED = -1  # in place of a label: any class


class ScoreNetwork(nn.Module):
    """The denoiser D.

    Attributes:
        widths: maps at each scale, finest first; each scale halves the side.
        patch: a cell of the finest scale holds patch x patch pixels.
        channels: of the image.
        num_classes: K.
    """

    widths: tuple[int, ...]
    patch: int
    channels: int
    num_classes: int

    @nn.compact
    def __call__(
        self, noisy: jax.Array, sigma: jax.Array, labels: jax.Array
    ) -> jax.Array:
        """What the noisy images most likely were.

        Args:
            noisy: [B, H, W, C] float32, an image in [-1, 1] plus sigma times a normal.
            sigma: [B] float32, above 0.
            labels: [B] int32; `UNLABELLED` for any class.

        Returns:
            [B, H, W, C] float32, the mean of the image given `noisy`.
        """
        total = jnp.sqrt(SIGMA_DATA**2 + sigma**2)
        skip, out, into = (
            (SIGMA_DATA / total) ** 2,
            sigma * SIGMA_DATA / total,
            1 / total,
        )
        condition = self._condition(sigma, labels)
        maps = self._maps(_over(into, noisy) * noisy, condition, labels)
        return _over(skip, noisy) * noisy + _over(out, noisy) * maps

    def _condition(self, sigma: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, 2 w]: what every block is told of level and class."""
        octaves = 2.0 ** jnp.arange(FREQUENCIES) / 4
        angles = jnp.log(sigma)[:, None] * octaves
        waves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        one_hot = jax.nn.one_hot(labels, self.num_classes)  # all 0 where unlabelled
        width = 2 * self.widths[0]
        hidden = nn.Dense(width)(waves) + nn.Dense(width, use_bias=False)(one_hot)
        return nn.silu(hidden)

    def _class_map(self, labels: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Where what is: convolutions of noise alone would be slow to learn it."""
        one_hot = jax.nn.one_hot(labels, self.num_classes)
        size = math.prod(shape[1:])
        return nn.Dense(size, kernel_init=nn.initializers.normal(0.1))(one_hot).reshape(
            shape
        )

    def _maps(
        self, images: jax.Array, condition: jax.Array, labels: jax.Array
    ) -> jax.Array:
        side = images.shape[1]
        short = -side % (self.patch * 2 ** (len(self.widths) - 1))
        padding = [(0, 0), (short // 2, short - short // 2)] * 2
        padded = jnp.pad(images, [padding[0], padding[1], padding[1], (0, 0)])
        maps = Conv(self.widths[0])(_to_depth(padded, self.patch))
        scales: list[jax.Array] = []
        for width in self.widths:
            if scales:
                maps = nn.Dense(width)(averaged(maps, 2))
            if len(scales) == len(self.widths) - 1:
                maps = maps + self._class_map(labels, maps.shape)
            maps = Block(width)(maps, condition)
            scales.append(maps)
        for finer, width in zip(scales[-2::-1], self.widths[-2::-1], strict=True):
            maps = finer + _double(nn.Dense(width)(maps))
            maps = maps + Conv(width)(_pool(nn.silu(maps)))
            maps = Block(width)(maps, condition)
        maps = nn.silu(_norm(self.widths[0])(maps))
        maps = Conv(self.patch**2 * self.channels, nn.initializers.zeros)(maps)
        start = short // 2
        return _to_space(maps, self.patch)[
            :, start : start + side, start : start + side
        ]


class Block(nn.Module):
    """A residual convolution unit whose norm is scaled and shifted by the condition."""

    width: int

    @nn.compact
    def __call__(self, maps: jax.Array, condition: jax.Array) -> jax.Array:
        """[B, s, s, width] and [B, F] to [B, s, s, width]."""
        scale, shift = jnp.split(nn.Dense(2 * self.width)(condition), 2, axis=-1)
        inner = Conv(self.width)(nn.silu(_norm(self.width)(maps)))
        inner = _norm(self.width)(inner) * _over(1 + scale, maps) + _over(shift, maps)
        return maps + Conv(self.width)(nn.silu(inner))


class Conv(nn.Module):
    """A 3 x 3 convolution, whose kernel has the shape of a product with patches.

    On a CPU it is that product: as fast as XLA's own convolution, and unlike that one also
    inside a loop. Elsewhere patches of whole batches would be most of what memory moves.
    """

    width: int
    init: Any = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, maps: jax.Array) -> jax.Array:
        """[B, s, s, c] to [B, s, s, width]."""
        weights = Weights(self.width, self.init, name='Dense_0')
        kernel, bias = weights(9 * maps.shape[-1])
        by_place = kernel.reshape(3, 3, -1, self.width)
        on_cpu = jax.default_backend() == 'cpu'
        made = (convolve_by_products if on_cpu else convolve)(
            maps, by_place, (1, 1), 'SAME'
        )
        return made + bias


class Weights(nn.Module):
    """A dense layer's parameters, by themselves."""

    width: int
    init: Any

    @nn.compact
    def __call__(self, features: int) -> tuple[jax.Array, jax.Array]:
        """The kernel [features, width] and the bias [width]."""
        kernel = self.param('kernel', self.init, (features, self.width))
        return kernel, self.param('bias', nn.initializers.zeros, (self.width,))


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(num_groups=math.gcd(width, 8))


def _over(values: jax.Array, maps: jax.Array) -> jax.Array:
    """[B] or [B, c] spread over [B, s, s, c]."""
    if values.ndim == 1:
        values = values[:, None]
    return values[:, None, None, :]


def _pool(maps: jax.Array) -> jax.Array:
    """The mean over 5 x 5 cells, those beyond the edge being 0."""
    side = maps.shape[1]
    padded = jnp.pad(maps, [(0, 0), (2, 2), (2, 2), (0, 0)])
    rows = sum((padded[:, i : i + side] for i in range(1, 5)), padded[:, :side])
    cells = sum((rows[:, :, j : j + side] for j in range(1, 5)), rows[:, :, :side])
    return cells / 25


def _double(maps: jax.Array) -> jax.Array:
    return jnp.repeat(jnp.repeat(maps, 2, axis=1), 2, axis=2)


def _to_depth(images: jax.Array, patch: int) -> jax.Array:
    batch, side, _, channels = images.shape
    cells = images.reshape(batch, side // patch, patch, side // patch, patch, channels)
    cells = cells.transpose(0, 1, 3, 2, 4, 5)
    return cells.reshape(batch, side // patch, side // patch, patch**2 * channels)


def _to_space(maps: jax.Array, patch: int) -> jax.Array:
    batch, side, _, depth = maps.shape
    cells = maps.reshape(batch, side, side, patch, patch, depth // patch**2)
    cells = cells.transpose(0, 1, 3, 2, 4, 5)
    return cells.reshape(batch, side * patch, side * patch, -1)


def make_score_network(config: Config) -> ScoreNetwork:
    """The network of a config.

    Raises:
        UserError: more scales than the image has.
    """
    dpgen, data = config.dpgen, config.data
    coarsest = data.image_size / (dpgen.patch * 2 ** (dpgen.scales - 1))
    if coarsest < 2:
        raise UserError(
            'config.dpgen.scales',
            f'is {dpgen.scales}: with patch = {dpgen.patch} the coarsest maps of '
            f'{data.image_size} x {data.image_size} images are smaller than 2 x 2',
            'Lower scales or patch',
        )
    widths = tuple(
        min(dpgen.width * 2**i, dpgen.max_width) for i in range(dpgen.scales)
    )
    return ScoreNetwork(widths, dpgen.patch, data.channels, data.num_classes)


def noise_levels(config: Config) -> tuple[float, ...]:
    """sigma_1 > ... > sigma_L, a geometric sequence of public constants."""
    dpgen = config.dpgen
    ratio = (dpgen.sigma_min / dpgen.sigma_max) ** (1 / (dpgen.num_levels - 1))
    return tuple(dpgen.sigma_max * ratio**i for i in range(dpgen.num_levels))
