"""Progressive growing by a public schedule (Karras et al. 2018, section 2, appendix A).

Training begins at the innermost side. Each doubling is faded in over a share of the steps,
and the same share follows at rest: with L doublings there are 2L + 1 phases of one length.
All parameters are there from the start and none changes its shape. A doubling that has not
begun has weight 0, so its gradient is exactly 0, and one program computes every stage.

How far a network has grown is a function of the step alone: public.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.networks.gans.sides import double, halve


def num_phases(doublings: int) -> int:
    """Of equal length: rest at the innermost side, then a fade and a rest each."""
    return 2 * doublings + 1


def weights_at(progress: jax.Array | float, doublings: int) -> jax.Array:
    """Alpha of each doubling.

    Args:
        progress: share of the run's steps that are done, in [0, 1].
        doublings: L.

    Returns:
        [L] float32 in [0, 1], from the image inwards; the last is the first to grow.
    """
    begins = 2 * jnp.arange(doublings - 1, -1, -1) + 1
    return jnp.clip(progress * num_phases(doublings) - begins, 0.0, 1.0)


def smaller(images: jax.Array, halvings: int) -> list[jax.Array]:
    """Images at every side, from the whole inwards."""
    made = [images]
    for _ in range(halvings):
        made.append(halve(made[-1]))
    return made


def blended(images: Sequence[jax.Array], weights: jax.Array) -> jax.Array:
    """What a stage shows, in full size (figure 2).

    Args:
        images: [B, s, s, C] at every side, from the whole inwards.
        weights: [L], of `weights_at`.

    Returns:
        [B, H, W, C]: as fine as the weights allow.
    """
    *finer, shown = images
    for weight, image in zip(weights[::-1], reversed(finer), strict=True):
        shown = weight * image + (1 - weight) * double(shown, image.shape[1])
    return shown


def grown_alone(tree: Any, weights: jax.Array) -> Any:
    """Parameters of doublings that have not begun, as zeros.

    For a noisy gradient: noise alone would move them.

    Args:
        tree: {'params': {part: ...}}; a part of the i-th side is named `..._i`.
        weights: [L], of `weights_at`.
    """
    has_begun = jnp.append(weights > 0, True)

    def of_part(name: str, part: Any) -> Any:
        side = name.rpartition('_')[2]
        if not side.isdigit():
            return part
        return jax.tree.map(lambda leaf: jnp.where(has_begun[int(side)], leaf, 0), part)

    return {'params': {n: of_part(n, part) for n, part in tree['params'].items()}}


@dataclasses.dataclass(frozen=True)
class Grown:
    """A network as far as it has grown, to be applied like it.

    Attributes:
        network: takes `progress` behind its inputs.
        progress: float32 scalar in [0, 1]; a float where it is fixed, as for a picture.
    """

    network: nn.Module
    progress: jax.Array | float

    def apply(self, params: Any, *inputs: jax.Array) -> jax.Array:
        """The network's answer at this stage."""
        made: jax.Array = self.network.apply(params, *inputs, self.progress)
        return made
