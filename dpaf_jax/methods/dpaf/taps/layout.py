"""The columns of a row: several taps of one image, joined within one bound."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.methods.dpaf.taps.features import TAPS, UNIT_TAPS, shapes
from dpaf_jax.networks.perceptual.features import NETWORKS, tapped
from dpaf_jax.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class Block:
    """One tap's part of a row: its shape, the bound on its norm, its share of the row's.

    Attributes:
        share: of the row's squared bound; those of a row add up to 1.
    """

    name: str
    shape: tuple[int, ...]
    bound: float
    share: float

    @property
    def size(self) -> int:
        """Number of columns."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class TapLayout:
    """The columns of a row.

    With the single tap 'conv2', as printed, the row is SIN's output itself, of norm at
    most sqrt(m) p (DPAF equation 2). Several taps are scaled to a joint bound of 1, and to
    equal bounds, so that none drowns another; `count` gets less, see `_shares`.

    Attributes:
        blocks: in the order of the columns.
        bound: l2 norm bound of a whole row: the sensitivity of DPAGG.
    """

    blocks: tuple[Block, ...]
    bound: float

    @property
    def size(self) -> int:
        """Number of columns F."""
        return sum(block.size for block in self.blocks)

    def scale(self, block: Block) -> float:
        """What a block is multiplied with inside a row."""
        return self.bound * math.sqrt(block.share) / block.bound

    def __contains__(self, name: str) -> bool:
        return any(block.name == name for block in self.blocks)

    def join(self, parts: dict[str, jax.Array]) -> jax.Array:
        """{tap: [B, *shape]} to rows [B, F]."""
        flat = [
            parts[b.name].reshape(len(parts[b.name]), -1) * self.scale(b)
            for b in self.blocks
        ]
        return jnp.concatenate(flat, axis=1)

    def part(self, rows: jax.Array, name: str) -> jax.Array:
        """Takes one tap out of rows or aggregates [A, F] and undoes its scale."""
        start = 0
        for block in self.blocks:
            if block.name == name:
                columns = rows[:, start : start + block.size] / self.scale(block)
                return columns.reshape(len(rows), *block.shape)
            start += block.size
        raise KeyError(name)

    def beside_conv2(self, rows: jax.Array) -> jax.Array:
        """[A, n] other taps than conv2 and count of rows [A, F], in units of conv2's bound.

        Nothing where conv2 is not tapped.
        """
        nothing = rows[:, :0]
        if 'conv2' not in self:
            return nothing
        (own,) = (b for b in self.blocks if b.name == 'conv2')
        others = [
            self.part(rows, b.name).reshape(len(rows), -1) * self.scale(b)
            for b in self.blocks
            if b.name not in ('conv2', 'count')
        ]
        return jnp.concatenate([nothing, *others], axis=1) / self.scale(own)

    def replaced(self, rows: jax.Array, name: str, part: jax.Array) -> jax.Array:
        """Rows [A, F] with another one's tap [A, *shape] in its place."""
        parts = {block.name: self.part(rows, block.name) for block in self.blocks}
        return self.join({**parts, name: part})


def make_tap_layout(config: Config) -> TapLayout:
    """The columns of DPAGG for the config's taps; UserError if they do not fit."""
    taps = config.dpaf.tap_names
    if set(taps) - set(TAPS) or len(set(taps)) < len(taps) or set(taps) == {'count'}:
        raise UserError(
            'config.dpaf.taps',
            f'is {config.dpaf.taps!r}',
            f'Join any of {", ".join(TAPS)} with commas, each once, not count alone',
        )
    if 'kinds' in taps and not tapped(taps):
        raise UserError(
            'config.dpaf.taps',
            f'is {config.dpaf.taps!r}: kinds is of what a network sees',
            f'Add {" or ".join(NETWORKS)}, or leave kinds out',
        )
    sizes = shapes(config)
    shares = _shares({tap: math.prod(sizes[tap]) for tap in taps})
    blocks = tuple(
        Block(tap, sizes[tap], _bound(tap, sizes[tap]), shares[tap]) for tap in taps
    )
    return TapLayout(blocks, blocks[0].bound if len(blocks) == 1 else 1.0)


def _shares(sizes: dict[str, int]) -> dict[str, float]:
    """Each tap's share of a row's squared bound, by its number of columns.

    A mean of F columns is their noisy sum over a noisy count. With share s for the count, its
    squared error is F / (1 - s) of the sum's noise and 1 / s of the count's, least at
    s = 1 / (1 + sqrt(F)). The other taps share the rest equally.
    """
    others = [size for tap, size in sizes.items() if tap != 'count']
    count = 1 / (1 + math.sqrt(sum(others))) if 'count' in sizes else 0.0
    return {
        tap: count if tap == 'count' else (1 - count) / len(others) for tap in sizes
    }


def _bound(tap: str, shape: tuple[int, ...]) -> float:
    """On the norm of a tap's columns; SIN's maps each have the root of their pixels."""
    side, maps = shape[0], shape[-1]
    return 1.0 if tap in UNIT_TAPS else math.sqrt(maps) * side
