"""Methods that match records by a distance: of embeddings, or of an optimal transport."""

import dataclasses
import math

from dpaf_jax.config.fields import above, at_least, between, plain
from dpaf_jax.config.methods.common import FALLING_RATE, ema

FEATURES = 'Number of random Fourier features: half cosines, half sines.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The generator's training on an embedding that was released once."""

    generator_steps: int = at_least(
        1200,
        1,
        'Number of generator steps after the one noised release; they cost no epsilon.',
    )
    batch_size: int = at_least(
        200, 1, 'Number of fakes in a generator step, equally many of each class.'
    )
    learning_rate: float = above(2e-3, 0.0, FALLING_RATE.format('generator'))
    ema_decay: float = ema(0.99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FourierConfig:
    """Random Fourier features; in front of the other fields, as releases have them."""

    features: int = at_least(2048, 2, FEATURES)
    length_scales: tuple[float, ...] = plain(
        (0.3,),
        'Length scale of the Gaussian kernel, in units of the square root of the '
        'number of pixels; several: the mean of their kernels.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpMerfConfig(EmbeddingConfig, FourierConfig):
    """DP-MERF: the features that are released once, and the generator's training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpKernelConfig(EmbeddingConfig):
    """DP-Kernel: a mean of Gaussian kernels."""

    generator_steps: int = at_least(
        1200,
        1,
        'Number of generator steps; after the one noised release they cost no epsilon, '
        'as_published each step is charged.',
    )
    features: int = at_least(4096, 2, f'{FEATURES} Unused as_published.')
    length_scales: tuple[float, ...] = plain(
        (0.1, 0.2, 0.4),
        'Length scales of the Gaussian kernels, in units of the square root of the '
        'number of pixels; the kernel is their mean.',
    )
    batch_size: int = at_least(
        200,
        1,
        'Number of fakes in a generator step; as_published also the expected number of '
        'records.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpHpConfig(EmbeddingConfig):
    """DP-HP: Hermite features of each pixel, and of a few pixels together."""

    sum_share: float = between(
        0.5, 0.0, 1.0, 'Weight of the sum kernel; the product kernel has the rest of 1.'
    )
    sum_order: int = between(
        10, 1, 200, 'Highest order C of the Hermite polynomials in the sum kernel.'
    )
    sum_length_scale: float = above(
        0.5,
        0.0,
        "Length scale of a pixel's Gaussian kernel in the sum kernel, for pixels in "
        '[-1, 1].',
    )
    product_order: int = between(
        3, 1, 40, 'Highest order C of the Hermite polynomials in the product kernel.'
    )
    product_length_scale: float = above(
        1.0,
        0.0,
        "Length scale of a pixel's Gaussian kernel in the product kernel, for pixels "
        'in [-1, 1].',
    )
    product_pixels: int = between(
        2, 1, 4, 'Number of pixels in a product, at random public places.'
    )
    products: int = at_least(
        400, 1, 'Number of products; the product kernel is the mean of their kernels.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PearlConfig(EmbeddingConfig):
    """PEARL: frequencies of characteristic functions, and the critic that weighs them."""

    features: int = at_least(
        4096, 2, 'Number of features F: real and imaginary parts at F / 2 frequencies.'
    )
    length_scales: tuple[float, ...] = plain(
        (0.3,),
        'Length scale of the Gaussian kernel that frequencies are drawn for, in units '
        'of the square root of the number of pixels; several: equal shares.',
    )
    critic_every: int = at_least(
        5, 1, 'Number of generator steps for each step of the critic.'
    )
    critic_learning_rate: float = above(
        1e-4,
        0.0,
        'Learning rate of the critic (Adam), whose parameters are relative changes of '
        "the frequencies' precisions.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NdpdcConfig:
    """NDPDC: the aggregates that are released, and the images that are fitted to them."""

    aggregates: int = at_least(
        200,
        1,
        'Number of aggregates (M): noisy sums of features by class, each of a random '
        'network of its own.',
    )
    batch_size: int = at_least(600, 1, 'Expected number of records in an aggregate.')
    width: int = at_least(32, 1, 'Feature maps of each layer of the random networks.')
    depth: int = at_least(
        0,
        0,
        'Layers of the random networks, each of which halves the side of an image; 0: '
        'as many as leave maps of 3 or 4 a side.',
    )
    images_per_class: int = at_least(
        20,
        1,
        'Number of images of each class in the release, counted by their pixels as '
        'the papers do: with parts there are parts^2 times as many, smaller ones.',
    )
    parts: int = between(
        1,
        1,
        4,
        'Factor by which held images are smaller along a side, so that parts^2 have '
        'the pixels of a whole one; each is enlarged when drawn (PEA: 2). 1: whole '
        'ones.',
    )
    steps: int = at_least(
        1000,
        1,
        'Number of training steps of the images, on one aggregate each, in turn; they '
        'cost no epsilon.',
    )
    learning_rate: float = above(
        0.05,
        0.0,
        'Learning rate of the images (Adam), for pixels in [-1, 1], falling to 2 % '
        'along a cosine.',
    )
    ema_decay: float = ema(0.99)

    @property
    def held_per_class(self) -> int:
        """Images of a class that the release holds, whole ones or parts."""
        return self.images_per_class * self.parts**2

    def layers(self, side: int) -> int:
        """Layers of the random networks, for images of `side` pixels."""
        return self.depth or max(1, math.ceil(math.log2(side)) - 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpSinkhornConfig:
    """DP-Sinkhorn: the loss between fakes and records, and its sanitised gradient."""

    batch_size: int = at_least(
        50, 2, 'Batch size of a step: number of fakes, and expected number of records.'
    )
    generator_steps: int = at_least(
        1000, 1, 'Number of generator steps, each with records drawn for it.'
    )
    l2_clip_norm: float = above(
        0.5,
        0.0,
        'Clipping bound C on the l2 norm of the gradient by all fakes of a step as one '
        'vector.',
    )
    cell: int = at_least(
        1,
        1,
        'Side in pixels of the squares by whose means fakes and records are compared; '
        'the generator makes a pixel for each, and images are enlarged.',
    )
    blur: float = above(
        0.05,
        0.0,
        'Weight of the entropy; the smaller, the nearer to optimal transport.',
    )
    l1_weight: float = at_least(
        1.0,
        0.0,
        'Weight m of the l1 distance beside the squared l2 distance in the cost.',
    )
    label_scale: float = above(
        15.0, 0.0, 'Scale of one-hot labels in the cost, beside pixels in [-1, 1].'
    )
    debias_share: float = between(
        0.2,
        0.0,
        1.0,
        'Share of the fakes that fresh ones replace on one side of the debiasing term.',
    )
    learning_rate: float = above(5e-4, 0.0, FALLING_RATE.format('generator'))
    ema_decay: float = ema(0.99)
