"""DPGEN as published: images of no class, which a classifier labels afterwards.

The score network has never seen a label. The classifier has learnt from the private images and
their labels, without noise, and is released with the network: no epsilon covers either.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.networks.layers import convolve
from dpaf_jax.networks.score import UNLABELLED, make_score_network
from dpaf_jax.release.samplers.dpgen import ScoreSampler, score_sampler
from dpaf_jax.release.samplers.protocol import Params

SCORE, LABELLER = 'score', 'labeller'
WIDTHS, HIDDEN = (32, 64), 64  # half of the authors', with one convolution less


def is_published(config: Config) -> bool:
    """Whether a release of this config has a classifier beside its score network."""
    return config.method == 'dpgen' and config.privacy.as_published


class Classifier(nn.Module):
    """Two convolutions of 3 x 3, each with ReLU and means over 2 x 2; two dense layers.

    Attributes:
        num_classes: K.
    """

    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """[B, H, W, C] float32 images in [-1, 1] to logits [B, K]."""
        maps = images
        for width in WIDTHS:
            conv = nn.Conv(width, (3, 3), conv_general_dilated=convolve)
            maps = nn.avg_pool(nn.relu(conv(maps)), (2, 2), (2, 2), padding='SAME')
        hidden = nn.relu(nn.Dense(HIDDEN)(maps.reshape(len(maps), -1)))
        return nn.Dense(self.num_classes)(hidden)


class UnlabelledSampler(ScoreSampler):
    """Draws images of any class, whatever classes are asked for."""

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """[B] labels, of which only the number counts, to [B, H, W, C] in [-1, 1]."""
        return super().sample(params, key, jnp.full_like(labels, UNLABELLED))


@dataclasses.dataclass(frozen=True)
class PublishedSampler:
    """A score network without classes, and what says afterwards what an image shows.

    Its parameters are {'score': of the network, 'labeller': of the classifier}.
    """

    score: UnlabelledSampler
    classifier: Classifier

    def init(self, key: jax.Array) -> Params:
        """See `Sampler`."""
        first, second = jax.random.split(key)
        image = jnp.zeros((1, *self.score.config.data.shape))
        return labelled(self.score.init(first), self.classifier.init(second, image))

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """See `Sampler`: of any class, whatever is asked for."""
        return self.score.sample(params[SCORE], key, labels)

    def label(self, params: Params, images: jax.Array) -> jax.Array:
        """See `LabellingSampler`."""
        return jnp.argmax(self.classifier.apply(params[LABELLER], images), axis=1)


def labelled(score: Params, labeller: Params) -> Params:
    """The parameters of a `PublishedSampler`."""
    return {SCORE: score, LABELLER: labeller}


def unlabelled_sampler(config: Config) -> UnlabelledSampler:
    """Of the score network alone; nothing can be guided without a label."""
    dpgen = dataclasses.replace(config.dpgen, guidance=1.0)
    config = dataclasses.replace(config, dpgen=dpgen)
    return UnlabelledSampler(make_score_network(config), config)


def dpgen_sampler(config: Config) -> ScoreSampler | PublishedSampler:
    """Of DPGEN: conditional, or as published."""
    if not is_published(config):
        return score_sampler(config)
    classifier = Classifier(config.data.num_classes)
    return PublishedSampler(unlabelled_sampler(config), classifier)
