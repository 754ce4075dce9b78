"""DP-HP: a generator matched by Hermite features (Vinaroz et al. 2022).

"Hermite polynomial features for private data generation". The row of an image has two
parts. Those of the sum kernel are Hermite features of each pixel alone, over the root of
the number of pixels. Those of the product kernel are outer products of the features of a
few pixels at random, public places, over the root of the number of such sets. Both parts
have norm at most 1; weighed by the roots of their shares, so has the row. What is
released, and why, is in `embedding/`.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.config.methods import DpHpConfig
from dpaf_jax.methods.embedding.matching import Matching
from dpaf_jax.methods.embedding.phase import MatchPhase
from dpaf_jax.methods.embedding.plan import one_release
from dpaf_jax.networks.fixed.hermite import hermite
from dpaf_jax.networks.images import reduced
from dpaf_jax.privacy.plan import PrivacyPlan
from dpaf_jax.training.run import Run


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The privacy plan of a run: one Gaussian on all records; looks at no image.

    Args:
        config: typed and checked.
        num_examples: N, public.

    Raises:
        UserError: the settings do not fit each other, or the budget.
    """
    return one_release(config, num_examples)


def matching(config: Config, plan: PrivacyPlan, num_devices: int) -> Matching:
    """The static part of a run on so many devices."""
    made = HermiteFeatures(config.data.shape, config.dp_hp)
    return Matching(config, plan, num_devices, made)


def train(run: Run) -> Any:
    """Releases the embedding, trains the generator; returns its parameters' average."""
    made = matching(run.config, run.plan, len(run.devices))
    return run.train(MatchPhase(run, made)).generator.ema_params


@dataclasses.dataclass(frozen=True)
class HermiteFeatures:
    """Rows of the sum kernel and of the product kernel, of norm at most 1.

    Attributes:
        shape: (H, W, C) of an image.
        settings: orders, length scales, products and shares.
    """

    shape: tuple[int, int, int]
    settings: DpHpConfig

    @property
    def pixels(self) -> int:
        """How many an image has, after it is reduced."""
        return int(jax.eval_shape(reduced, jnp.zeros((1, *self.shape))).size)

    @property
    def features(self) -> int:
        """See `FeatureMap`: those of the sum, then those of the products."""
        settings = self.settings
        product = (settings.product_order + 1) ** settings.product_pixels
        return self.pixels * (settings.sum_order + 1) + settings.products * product

    def init(self, key: jax.Array) -> jax.Array:
        """[products, product_pixels] int32, different places in each product."""
        settings = self.settings

        def places(key: jax.Array) -> jax.Array:
            return jax.random.permutation(key, self.pixels)[: settings.product_pixels]

        return jax.lax.map(places, jax.random.split(key, settings.products))

    def rows(self, coins: jax.Array, images: jax.Array) -> jax.Array:
        """See `FeatureMap`."""
        flat = reduced(images).reshape(len(images), -1)
        share = self.settings.sum_share
        one, other = self._sum(flat), self._products(flat[:, coins])
        return jnp.concatenate(
            [math.sqrt(share) * one, math.sqrt(1 - share) * other], axis=1
        )

    def _sum(self, flat: jax.Array) -> jax.Array:
        settings = self.settings
        found = hermite(flat, settings.sum_order, settings.sum_length_scale)
        return found.reshape(len(flat), -1) / math.sqrt(self.pixels)

    def _products(self, chosen: jax.Array) -> jax.Array:
        """Of [B, products, product_pixels] values."""
        settings = self.settings
        found = hermite(chosen, settings.product_order, settings.product_length_scale)
        whole = found[:, :, 0]
        for place in range(1, settings.product_pixels):
            outer = whole[..., :, None] * found[:, :, place, None, :]
            whole = outer.reshape(*whole.shape[:2], -1)
        return whole.reshape(len(chosen), -1) / math.sqrt(settings.products)
