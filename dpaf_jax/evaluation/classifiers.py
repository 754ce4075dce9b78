"""Classifiers that judge synthetic images, as Flax Linen modules.

All turn [B, H, W, C] float32 images in [0, 1] into [B, K] float32 logits. `train` says
whether to drop units, with the rng 'dropout', and whether to normalise by the batch.
"""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from dpaf_jax.config import EvaluationConfig

LEARNING_RATE, LEARNING_RATE_RESNET = 1e-3, 2e-3
WARM_UP = 0.1  # of the steps


class LogisticRegression(nn.Module):
    """Multinomial logistic regression on pixels."""

    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """Returns logits [B, num_classes]."""
        del train
        return nn.Dense(self.num_classes)(images.reshape(len(images), -1))


class Cnn(nn.Module):
    """The small CNN that the literature evaluates with.

    Conv 3x3 32, ReLU, max pool, dropout 0.2; conv 3x3 64, ReLU, max pool, dropout
    0.25; FC 64, ReLU; FC `num_classes`. Convolutions keep the size ('SAME'), so
    every image of at least 4x4 works.
    """

    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """Returns logits [B, num_classes]."""
        x = images
        for features, rate in ((32, 0.2), (64, 0.25)):
            # ReLU is monotone: it may follow the pool, where it costs a quarter.
            x = nn.relu(max_pool(nn.Conv(features, (3, 3))(x)))
            x = nn.Dropout(rate, deterministic=not train)(x)
        x = nn.relu(nn.Dense(64)(x.reshape(len(x), -1)))
        return nn.Dense(self.num_classes)(x)


class WideResNet(nn.Module):
    """WRN-depth-width (Zagoruyko and Komodakis 2016, Table 1), without dropout.

    A convolution to 16 maps; three groups of (depth - 4) / 6 residual blocks with 16, 32
    and 64 times `width` maps, the last two groups at half the side; the mean over positions.
    """

    num_classes: int
    depth: int
    width: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """Returns logits [B, num_classes]."""
        x = _conv(16)(images)
        for maps, stride in ((16, 1), (32, 2), (64, 2)):
            for block in range((self.depth - 4) // 6):
                x = _Block(maps * self.width, 1 if block else stride)(x, train)
        x = nn.relu(_norm(train)(x))
        return nn.Dense(self.num_classes)(jnp.mean(x, axis=(1, 2)))


class _Block(nn.Module):
    """Two 3x3 convolutions behind normalisation and ReLU, and what goes past them."""

    maps: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        inner = nn.relu(_norm(train)(x))
        if x.shape[-1] != self.maps:
            x = _conv(self.maps, 1, self.stride)(inner)
        inner = nn.relu(_norm(train)(_conv(self.maps, 3, self.stride)(inner)))
        return x + _conv(self.maps)(inner)


def _conv(maps: int, kernel: int = 3, stride: int = 1) -> nn.Conv:
    return nn.Conv(
        maps,
        (kernel, kernel),
        (stride, stride),
        use_bias=False,
        kernel_init=nn.initializers.he_normal(),
    )


def _norm(train: bool) -> nn.BatchNorm:
    return nn.BatchNorm(use_running_average=not train, momentum=0.9)


def max_pool(x: jax.Array) -> jax.Array:
    """Maximum over 2x2 windows, [B, H, W, C] -> [B, H // 2, W // 2, C].

    As two pairwise maxima: the backward pass of a windowed reduction
    (select-and-scatter) is slow on CPU.
    """
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    x = jnp.maximum(x[:, 0:height:2], x[:, 1:height:2])
    return jnp.maximum(x[:, :, 0:width:2], x[:, :, 1:width:2])


def make_models(config: EvaluationConfig, num_classes: int) -> dict[str, nn.Module]:
    """The classifiers that the config asks for, by name; the slowest comes first."""
    models: dict[str, nn.Module] = {}
    if config.wide_resnet:
        depth, width = map(int, config.wide_resnet.split('-'))
        models['wide_resnet'] = WideResNet(num_classes, depth, width)
    models['cnn'] = Cnn(num_classes)
    models['logistic_regression'] = LogisticRegression(num_classes)
    return models


def make_optimizer(model: nn.Module, steps: int) -> optax.GradientTransformation:
    """Adam, its rate rising over a tenth of `steps`; for residual networks falling to 0.

    Inputs of the CNN's dense layer are positive, so that Adam's first steps move all
    weights of a unit one way: of 64 units behind the 16 384 inputs of an image of 64 x 64
    half would die in the first step, most within ten.
    """
    if isinstance(model, WideResNet):
        return optax.adam(optax.cosine_decay_schedule(LEARNING_RATE_RESNET, steps))
    warm_up = max(1, round(WARM_UP * steps))
    return optax.adam(optax.linear_schedule(0.0, LEARNING_RATE, warm_up))
