"""Methods that match records by a distance: of embeddings, or of an optimal transport."""

import dataclasses

from dpaf_jax.config.fields import above, at_least, between, plain
from dpaf_jax.config.methods.common import ema


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The generator's training on an embedding that was released once."""

    generator_steps: int = at_least(
        1200, 1, 'After the one noised release; they cost no epsilon.'
    )
    batch_size: int = at_least(200, 1, 'Fakes per generator step.')
    learning_rate: float = above(2e-3, 0.0, "Adam's, falling to 2 % along a cosine.")
    ema_decay: float = ema(0.99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FourierConfig:
    """Random Fourier features; in front of the other fields, as releases have them."""

    features: int = at_least(2048, 2, 'Of the embedding: half cosines, half sines.')
    length_scales: tuple[float, ...] = plain(
        (0.3,), "Of the kernel, times sqrt(pixels); several: the kernels' mean."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpMerfConfig(EmbeddingConfig, FourierConfig):
    """DP-MERF: the features that are released once, and the generator's training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpKernelConfig(EmbeddingConfig):
    """DP-Kernel: a mean of Gaussian kernels."""

    features: int = at_least(4096, 2, 'Of the embedding: half cosines, half sines.')
    length_scales: tuple[float, ...] = plain(
        (0.1, 0.2, 0.4), 'Of the kernels, times sqrt(pixels); equal shares.'
    )
    batch_size: int = at_least(
        200, 1, 'Fakes per generator step; as_published: and expected records.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpHpConfig(EmbeddingConfig):
    """DP-HP: Hermite features of each pixel, and of a few pixels together."""

    sum_share: float = between(
        0.5, 0.0, 1.0, 'Of the sum kernel in the row; the product kernel has the rest.'
    )
    sum_order: int = between(10, 1, 200, 'C, the highest polynomial of a pixel.')
    sum_length_scale: float = above(
        0.5, 0.0, "Of a pixel's Gaussian kernel, for pixels in [-1, 1]."
    )
    product_order: int = between(3, 1, 40, 'C, the highest polynomial in a product.')
    product_length_scale: float = above(1.0, 0.0, 'As that of the sum.')
    product_pixels: int = between(2, 1, 4, 'Pixels of a product, at random places.')
    products: int = at_least(400, 1, 'So many of them; their kernels are averaged.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PearlConfig(EmbeddingConfig):
    """PEARL: frequencies of characteristic functions, and the critic that weighs them."""

    features: int = at_least(4096, 2, 'Real and imaginary parts of F / 2 frequencies.')
    length_scales: tuple[float, ...] = plain(
        (0.3,), 'Of the frequencies, times sqrt(pixels), before they are weighed.'
    )
    critic_every: int = at_least(5, 1, 'Generator steps between two of the critic.')
    critic_learning_rate: float = above(1e-4, 0.0, "Adam's, relative to the scale.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NdpdcConfig:
    """NDPDC: the aggregates that are released, and the images that are fitted to them."""

    aggregates: int = at_least(
        200, 1, 'M: noisy sums by class, each of random features of its own.'
    )
    batch_size: int = at_least(600, 1, 'Expected records of an aggregate.')
    width: int = at_least(32, 1, 'Maps of each layer of a random network ...')
    depth: int = at_least(
        2, 1, '... and its layers, of which each halves the side of an image.'
    )
    images_per_class: int = at_least(
        20, 1, 'As the papers count: in pixels, so many whole images ...'
    )
    parts: int = between(
        1, 1, 4, '... each cut into parts x parts images that are held small (PEA: 2).'
    )
    steps: int = at_least(
        1000, 1, 'On the images, an aggregate each; they cost no epsilon.'
    )
    learning_rate: float = above(
        0.05, 0.0, "Adam's, of pixels in [-1, 1], falling to 2 % along a cosine."
    )
    ema_decay: float = ema(0.99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpSinkhornConfig:
    """DP-Sinkhorn: the loss between fakes and records, and its sanitised gradient."""

    batch_size: int = at_least(50, 2, 'Expected records per step, and fakes.')
    generator_steps: int = at_least(1000, 1, 'Each has a draw of records of its own.')
    l2_clip_norm: float = above(0.5, 0.0, 'C, of the gradient by all fakes as one.')
    cell: int = at_least(
        1, 1, 'Fakes and records are compared by means over so many pixels squared.'
    )
    blur: float = above(0.05, 0.0, 'Weight of the entropy; small: optimal transport.')
    l1_weight: float = at_least(1.0, 0.0, 'm, of l1 beside squared l2 in the cost.')
    label_scale: float = above(
        15.0, 0.0, 'Of one-hot labels, beside pixels in [-1, 1].'
    )
    debias_share: float = between(
        0.2,
        0.0,
        1.0,
        'Of the fakes: fresh ones on the other side of the debiasing term.',
    )
    learning_rate: float = above(5e-4, 0.0, "Adam's, falling to 2 % along a cosine.")
    ema_decay: float = ema(0.99)
