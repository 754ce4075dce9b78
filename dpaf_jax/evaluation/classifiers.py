"""Classifiers that judge synthetic images, as Flax Linen modules.

All turn [B, H, W, C] float32 images in [0, 1] into [B, K] float32 logits. `train` says
whether to drop units, with the rng 'dropout', and whether to normalise by the batch. A recipe
says how one of them is trained.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from dpaf_jax.config import EvaluationConfig
from dpaf_jax.networks.layers import convolve

LEARNING_RATE, LEARNING_RATE_RESNET = 1e-3, 2e-3
WARM_UP = 0.1  # of the steps
# Epochs of many images; few are shown until so many have been seen: five epochs of some
# thousand real images would be too few steps, and no ceiling.
USUAL_EPOCHS, FEWEST_SEEN = 5, 100_000
# Rate, batch size and epochs. AI-secure/DataLens, evaluation/train-classifier-*.py: mnist
# and fmnist; celebA and hair.
DATALENS_GREY, DATALENS_COLOUR = (2e-3, 512, 600), (1e-4, 256, 250)
# 2019ChenGong/DPImageBench, evaluation/evaluator.py, for all but CIFAR.
BENCH_EPOCHS, BENCH_BATCH, BENCH_RATE, BENCH_EMA = 50, 256, 1e-2, 0.9999
BENCH_FALL, BENCH_FALL_EVERY = 0.2, 20  # of the rate, epochs
BENCH_DROPOUT = 0.3  # of the Wide ResNet


class Recipe(NamedTuple):
    """A classifier and its training.

    Attributes:
        model: the network.
        batch_size: of a step; fewer, if there are fewer images.
        epochs: over the images; 0: `USUAL_EPOCHS`, or as many as show `FEWEST_SEEN` images.
        optimizer: from the number of all steps.
        ema: by which the parameters that are evaluated follow the trained ones; 0: they are.
    """

    model: nn.Module
    batch_size: int
    epochs: int
    optimizer: Callable[[int], optax.GradientTransformation]
    ema: float = 0.0

    def steps_per_epoch(self, num_examples: int) -> int:
        """Minibatches of an epoch; the last one is filled up."""
        return math.ceil(num_examples / min(self.batch_size, num_examples))

    def epochs_over(self, num_examples: int) -> int:
        """Passes over so many images."""
        few = math.ceil(FEWEST_SEEN / num_examples)
        return self.epochs or max(USUAL_EPOCHS, few)

    def steps(self, num_examples: int) -> int:
        """Of the whole training."""
        return self.epochs_over(num_examples) * self.steps_per_epoch(num_examples)


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
            conv = nn.Conv(features, (3, 3), conv_general_dilated=convolve)
            x = nn.relu(max_pool(conv(x)))
            x = nn.Dropout(rate, deterministic=not train)(x)
        x = nn.relu(nn.Dense(64)(x.reshape(len(x), -1)))
        return nn.Dense(self.num_classes)(x)


class DatalensCnn(nn.Module):
    """The CNN of G-PATE's and DataLens' evaluation, and so of DPGEN's and DPAF's tables.

    Conv 3x3 32, ReLU, max pool, dropout 0.2; conv 3x3 64, ReLU, dropout 0.25; FC 64, ReLU;
    FC `num_classes`. Convolutions are 'VALID' and there is one pool, so images have at least
    8x8 pixels.
    """

    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """Returns logits [B, num_classes]."""

        def drop(x: jax.Array, rate: float) -> jax.Array:
            return nn.Dropout(rate, deterministic=not train)(x)

        start = nn.initializers.glorot_uniform()  # as Keras begins
        x = nn.Conv(32, (3, 3), padding='VALID', kernel_init=start)(images)
        x = drop(nn.relu(max_pool(x)), 0.2)
        x = nn.Conv(64, (3, 3), padding='VALID', kernel_init=start)(x)
        x = drop(nn.relu(x), 0.25)
        x = nn.relu(nn.Dense(64, kernel_init=start)(x.reshape(len(x), -1)))
        return nn.Dense(self.num_classes, kernel_init=start)(x)


class WideResNet(nn.Module):
    """WRN-depth-width (Zagoruyko and Komodakis 2016, Table 1).

    A convolution to 16 maps; three groups of (depth - 4) / 6 residual blocks with 16, 32
    and 64 times `width` maps, the last two groups at half the side; the mean over positions.
    `dropout` is the share of units dropped between a block's convolutions.
    """

    num_classes: int
    depth: int
    width: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """Returns logits [B, num_classes]."""
        x = _conv(16)(images)
        for maps, stride in ((16, 1), (32, 2), (64, 2)):
            for block in range((self.depth - 4) // 6):
                stride = 1 if block else stride
                x = _Block(maps * self.width, stride, self.dropout)(x, train)
        x = nn.relu(_norm(train)(x))
        return nn.Dense(self.num_classes)(jnp.mean(x, axis=(1, 2)))


class _Block(nn.Module):
    """Two 3x3 convolutions behind normalisation and ReLU, and what goes past them."""

    maps: int
    stride: int
    dropout: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        inner = nn.relu(_norm(train)(x))
        if x.shape[-1] != self.maps:
            x = _conv(self.maps, 1, self.stride)(inner)
        inner = nn.relu(_norm(train)(_conv(self.maps, 3, self.stride)(inner)))
        inner = nn.Dropout(self.dropout, deterministic=not train)(inner)
        return x + _conv(self.maps)(inner)


class ResNet(nn.Module):
    """ResNet-depth for small images (He et al. 2016, section 4.2), with projections.

    A convolution to 16 maps; three groups of (depth - 2) / 6 residual blocks with 16, 32
    and 64 maps, the last two groups at half the side; the mean over positions.
    """

    num_classes: int
    depth: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """Returns logits [B, num_classes]."""
        x = nn.relu(_norm(train)(_conv(16)(images)))
        for maps, stride in ((16, 1), (32, 2), (64, 2)):
            for block in range((self.depth - 2) // 6):
                x = _PlainBlock(maps, 1 if block else stride)(x, train)
        return nn.Dense(self.num_classes)(jnp.mean(x, axis=(1, 2)))


class _PlainBlock(nn.Module):
    """Two 3x3 convolutions, normalisation behind each, and what goes past them."""

    maps: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        past = x
        if x.shape[-1] != self.maps:
            past = _norm(train)(_conv(self.maps, 1, self.stride)(x))
        inner = nn.relu(_norm(train)(_conv(self.maps, 3, self.stride)(x)))
        return nn.relu(past + _norm(train)(_conv(self.maps)(inner)))


class ResNeXt(nn.Module):
    """ResNeXt-29, 8 x 64d (Xie et al. 2017, section 5.3)."""

    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """Returns logits [B, num_classes]."""
        x = nn.relu(_norm(train)(_conv(64)(images)))
        for stage in range(3):
            for block in range(3):
                stride = 2 if stage and not block else 1
                x = _GroupedBlock(64 * 2**stage, stride)(x, train)
        return nn.Dense(self.num_classes)(jnp.mean(x, axis=(1, 2)))


class _GroupedBlock(nn.Module):
    """Eight paths of `width` maps each, and what goes past them."""

    width: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        maps, past = 8 * self.width, x
        if x.shape[-1] != 4 * self.width:
            past = _norm(train)(_conv(4 * self.width, 1, self.stride)(x))
        inner = nn.relu(_norm(train)(_conv(maps, 1)(x)))
        inner = nn.relu(_norm(train)(_conv(maps, 3, self.stride, groups=8)(inner)))
        return nn.relu(past + _norm(train)(_conv(4 * self.width, 1)(inner)))


class Centred(nn.Module):
    """A classifier that sees its images in [-1, 1]."""

    model: nn.Module

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        """Returns the logits of `model`, [B, num_classes]."""
        logits: jax.Array = self.model(2 * images - 1, train)
        return logits


def _conv(maps: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv:
    return nn.Conv(
        maps,
        (kernel, kernel),
        (stride, stride),
        feature_group_count=groups,
        use_bias=False,
        kernel_init=nn.initializers.he_normal(),
        conv_general_dilated=convolve if groups == 1 else None,
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


@functools.cache  # equal recipes are one, and so are the programs of their trainings
def make_recipes(
    config: EvaluationConfig, num_classes: int, channels: int
) -> dict[str, Recipe]:
    """The classifiers that the config asks for, by name; the slowest comes first."""
    if config.suite == 'dpimagebench':
        return _bench_recipes(num_classes)

    def recipe(model: nn.Module) -> Recipe:
        return Recipe(
            model,
            config.batch_size,
            config.epochs,
            lambda steps: make_optimizer(model, steps),
        )

    def wide_resnet(kind: str) -> Recipe:
        depth, width = map(int, kind.split('-'))
        return recipe(WideResNet(num_classes, depth, width))

    made: dict[str, Recipe] = {}
    if config.suite == 'slow':
        made['resnext'] = recipe(ResNeXt(num_classes))
        made['wide_resnet_40_4'] = wide_resnet('40-4')
        made['wide_resnet_16_2'] = wide_resnet('16-2')
        rate, batch_size, epochs = DATALENS_GREY if channels == 1 else DATALENS_COLOUR
        made['datalens_cnn'] = Recipe(
            DatalensCnn(num_classes),
            config.datalens_batch_size or batch_size,
            config.datalens_epochs or epochs,
            lambda steps: optax.sgd(rate),
        )
    if config.wide_resnet:
        made['wide_resnet'] = wide_resnet(config.wide_resnet)
    made['cnn'] = recipe(Cnn(num_classes))
    made['logistic_regression'] = recipe(LogisticRegression(num_classes))
    return made


def _bench_recipes(num_classes: int) -> dict[str, Recipe]:
    """DPImageBench's three, but for their initial weights, which are those of the others."""

    def optimizer(steps: int) -> optax.GradientTransformation:
        each = steps // BENCH_EPOCHS * BENCH_FALL_EVERY
        falls = {each: BENCH_FALL, 2 * each: BENCH_FALL}
        return optax.adam(optax.piecewise_constant_schedule(BENCH_RATE, falls))

    models = {
        'resnext': ResNeXt(num_classes),
        'wide_resnet_40_4': WideResNet(num_classes, 40, 4, BENCH_DROPOUT),
        'resnet_110': ResNet(num_classes, 110),
    }
    return {
        name: Recipe(Centred(model), BENCH_BATCH, BENCH_EPOCHS, optimizer, BENCH_EMA)
        for name, model in models.items()
    }


def make_optimizer(model: nn.Module, steps: int) -> optax.GradientTransformation:
    """Adam, its rate rising over a tenth of `steps`; for residual networks falling to 0.

    Inputs of the CNN's dense layer are positive, so that Adam's first steps move all
    weights of a unit one way: of 64 units behind the 16 384 inputs of an image of 64 x 64
    half would die in the first step, most within ten.
    """
    if isinstance(model, WideResNet | ResNeXt):
        return optax.adam(optax.cosine_decay_schedule(LEARNING_RATE_RESNET, steps))
    warm_up = max(1, round(WARM_UP * steps))
    first = LEARNING_RATE / warm_up  # not 0: one step would leave the initial weights
    return optax.adam(optax.linear_schedule(first, LEARNING_RATE, warm_up - 1))
