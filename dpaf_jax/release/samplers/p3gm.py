"""P3GM's sampler: a code from its class's Gaussian, through the decoder."""

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.networks.architecture import SLOPE
from dpaf_jax.networks.layers import multiply
from dpaf_jax.release.samplers.protocol import Params

DECODER, MIXTURE = 'decoder', 'mixture'


class Decoder(nn.Module):
    """Two fully connected layers with leaky ReLU, then one logit for each pixel.

    Attributes:
        width: units of each layer.
        shape: (H, W, C) of images.
        num_classes: an embedding of the label joins the first layer's output.
    """

    width: int
    shape: tuple[int, int, int]
    num_classes: int

    @nn.compact
    def __call__(self, codes: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, d'] codes and [B] labels to [B, H, W, C] logits of pixels in [0, 1]."""

        def dense(units: int) -> nn.Dense:
            return nn.Dense(units, dot_general=multiply)

        label = nn.Embed(self.num_classes, self.width)(labels)
        hidden = nn.leaky_relu(dense(self.width)(codes) + label, SLOPE)
        hidden = nn.leaky_relu(dense(self.width)(hidden), SLOPE)
        logits = dense(math.prod(self.shape))(hidden)
        return logits.reshape(len(codes), *self.shape)


def make_decoder(config: Config) -> Decoder:
    """Of a config."""
    data = config.data
    return Decoder(config.p3gm.width, data.shape, data.num_classes)


@dataclasses.dataclass(frozen=True)
class PhasedSampler:
    """A Gaussian of codes for each class, and the decoder.

    Its parameters are {'decoder': of the network, 'mixture': {'means': [K, d'],
    'factors': [K, d', d']}}, where a class's covariance is F F^T.
    """

    decoder: Decoder
    dims: int

    def init(self, key: jax.Array) -> Params:
        """See `Sampler`: normal codes, whatever the class."""
        codes, labels = jnp.zeros((1, self.dims)), jnp.zeros(1, jnp.int32)
        k = self.decoder.num_classes
        factors = jnp.tile(jnp.eye(self.dims), (k, 1, 1))
        return {
            DECODER: self.decoder.init(key, codes, labels),
            MIXTURE: {'means': jnp.zeros((k, self.dims)), 'factors': factors},
        }

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """See `Sampler`."""
        means, factors = (params[MIXTURE][name] for name in ('means', 'factors'))
        normal = jax.random.normal(key, (len(labels), self.dims))
        # All classes' codes of each draw, and one of them: no copy of a factor per image.
        codes = jnp.einsum('kij,bj->kbi', factors, normal) + means[:, None]
        own = codes[labels, jnp.arange(len(labels))]
        logits: Any = self.decoder.apply(params[DECODER], own, labels)
        return jnp.tanh(logits / 2)  # the mean pixel, from [0, 1] to [-1, 1]


def phased_sampler(config: Config) -> PhasedSampler:
    """Of P3GM."""
    return PhasedSampler(make_decoder(config), config.p3gm.dims)
