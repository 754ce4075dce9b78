"""From released parameters to images: each method's sampler, by the method's name.

Neither data nor training code can be reached from here: a release needs no more.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.networks.discriminator import to_uint8
from dpaf_jax.networks.generator import make_generator
from dpaf_jax.networks.wavelets import num_features, wavelet_features
from dpaf_jax.release.pictures import sample_grid
from dpaf_jax.release.samplers.dpgen import score_sampler
from dpaf_jax.release.samplers.warp import warped
from dpaf_jax.runtime.errors import UserError

Params = Any
GENERATOR, LABELLER = 'generator', 'labeller'
PRIOR = 'prior'  # among released parameters: class probabilities, noisy and paid for


class Sampler(Protocol):
    """Draws images of given classes."""

    def init(self, key: jax.Array) -> Params:
        """Random parameters, as training starts from: their names and shapes."""

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """[B] int32 labels to [B, H, W, C] float32 images in [-1, 1]."""


@runtime_checkable
class Labels(Protocol):
    """What a sampler has besides, if its images get their labels afterwards."""

    def label(self, params: Params, images: jax.Array) -> jax.Array:
        """[B, H, W, C] images in [-1, 1] to their classes, [B] int32."""


@dataclasses.dataclass(frozen=True)
class LatentSampler:
    """One pass of a generator network over normal draws, `scale` times as wide."""

    generator: Any  # a module, or what has init and apply like one
    z_dim: int
    prior: tuple[float, ...] = ()
    scale: float = 1.0

    def init(self, key: jax.Array) -> Params:
        """See `Sampler`; with a `prior` of classes where the method releases one."""
        z, labels = jnp.zeros((1, self.z_dim)), jnp.zeros(1, jnp.int32)
        params = self.generator.init(key, z, labels)
        if not self.prior:
            return params
        return {**params, PRIOR: {'classes': jnp.array(self.prior)}}

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """See `Sampler`."""
        z = self.scale * jax.random.normal(key, (len(labels), self.z_dim))
        images: jax.Array = self.generator.apply(params, z, labels)
        return images


@dataclasses.dataclass(frozen=True)
class SamplerPerLabel:
    """A generator for each label; parameters have a leading axis [K]."""

    generator: LatentSampler
    num_classes: int

    def init(self, key: jax.Array) -> Params:
        """See `Sampler`."""
        made: Params = jax.vmap(self.generator.init)(
            jax.random.split(key, self.num_classes)
        )
        return made

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """See `Sampler`: every generator draws all, each image is its own label's.

        K passes, but no copy of the parameters for each image.
        """
        images: Any = 0.0
        for k in range(self.num_classes):
            own = jax.tree.map(lambda leaf, k=k: leaf[k], params)
            made = self.generator.sample(own, key, labels)
            images = jnp.where((labels == k)[:, None, None, None], made, images)
        return images


@dataclasses.dataclass(frozen=True)
class LabelledSampler:
    """A generator, and a labeller that says what each of its images shows, once bent."""

    generator: LatentSampler
    config: Config

    def init(self, key: jax.Array) -> Params:
        """See `Sampler`."""
        return labelled(self.generator.init(key), init_weights(self.config))

    def sample(self, params: Params, key: jax.Array, labels: jax.Array) -> jax.Array:
        """See `Sampler`: of the generator's classes, whatever the labeller says."""
        images = self.generator.sample(params[GENERATOR], key, labels)
        most = self.config.dpaf.generator.warp
        return warped(jax.random.fold_in(key, 1), images, most)

    def label(self, params: Params, images: jax.Array) -> jax.Array:
        """See `Labels`."""
        logits = wavelet_features(images) @ params[LABELLER]['weights']
        return jnp.argmax(logits, axis=1)


def init_weights(config: Config) -> Params:
    """A labeller's, {'weights': [features, K]}, before it has learnt: zeros."""
    data = config.data
    features = num_features(data.image_size, data.channels)
    return {'weights': jnp.zeros((features, data.num_classes))}


def labelled(generator: Params, labeller: Params) -> Params:
    """The parameters of a `LabelledSampler`."""
    return {GENERATOR: generator, LABELLER: labeller}


def dpaf_sampler(config: Config) -> LatentSampler | LabelledSampler:
    """DPAF's: with a labeller where phase 1 has learnt one."""
    scale = config.dpaf.generator.latent_scale
    generator = dataclasses.replace(latent_sampler(config), scale=scale)
    if config.dpaf.classifier.private == LABELLER:
        return LabelledSampler(generator, config)
    return generator


def unbent(config: Config) -> Config:
    """The config without a warp.

    Whoever has a release can draw so: bending images protects nobody, and attacks must not
    be misled by it.
    """
    if config.method != 'dpaf':  # a release holds its own method's section alone
        return config
    generator = dataclasses.replace(config.dpaf.generator, warp=0.0)
    return dataclasses.replace(
        config, dpaf=dataclasses.replace(config.dpaf, generator=generator)
    )


def latent_sampler(config: Config) -> LatentSampler:
    """Of the generator that reverses the discriminator."""
    return LatentSampler(make_generator(config), config.networks.z_dim)


def dpba_wgan_sampler(config: Config) -> LatentSampler | SamplerPerLabel:
    """DPBA-WGAN's: one generator, or one for each label."""
    generator = latent_sampler(config)
    if config.dpba_wgan.per_label:
        return SamplerPerLabel(generator, config.data.num_classes)
    return generator


@dataclasses.dataclass(frozen=True)
class SmoothGenerator:
    """A generator of small images, enlarged.

    G-PATE's votes are about smooth directions: what these cannot see must not be there,
    or noise would move it about.

    Attributes:
        generator: of the small images.
        size: of the large ones.
    """

    generator: Any
    size: int

    def init(self, *args: Any) -> Params:
        """As of a module."""
        return self.generator.init(*args)

    def apply(self, params: Params, z: jax.Array, labels: jax.Array) -> jax.Array:
        """[B, z_dim] and [B] to [B, size, size, C] in [-1, 1]."""
        small = self.generator.apply(params, z, labels)
        shape = (len(small), self.size, self.size, small.shape[-1])
        return jax.image.resize(small, shape, 'bilinear')


def g_pate_sampler(config: Config) -> LatentSampler:
    """The student; with the class distribution if that is learnt."""
    student, g_pate = latent_sampler(config), config.g_pate
    learnt = config.data.prior if g_pate.noisy_prior else ()
    if g_pate.cell > 1 and not config.data.columns:
        size = config.data.image_size
        data = dataclasses.replace(config.data, image_size=-(-size // g_pate.cell))
        small = make_generator(dataclasses.replace(config, data=data))
        student = dataclasses.replace(student, generator=SmoothGenerator(small, size))
    return dataclasses.replace(student, prior=learnt)


SAMPLERS: dict[str, Callable[[Config], Sampler]] = {
    'dpaf': dpaf_sampler,
    'dpgen': score_sampler,
    'dp_merf': latent_sampler,
    'dp_gan': latent_sampler,
    'g_pate': g_pate_sampler,
    'dpba_wgan': dpba_wgan_sampler,
    'gs_wgan': latent_sampler,
}


def make_sampler(config: Config) -> Sampler:
    """The sampler of a config's method; UserError for an unknown one."""
    if config.method not in SAMPLERS:
        raise UserError(
            'config.method',
            f'is {config.method!r}',
            f'Choose one of {", ".join(SAMPLERS)}',
        )
    return SAMPLERS[config.method](config)


def preview(
    config: Config,
    params: Params,
    key: jax.Array,
    per_class: int = 8,
    sampler: Sampler | None = None,
) -> Image.Image:
    """A picture of samples, a row per class: what progress is judged by.

    Args:
        config: of the run.
        params: the sampler's.
        key: of the draws.
        per_class: images in a row.
        sampler: default: the method's.
    """
    k = config.data.num_classes
    labels = np.repeat(np.arange(k), per_class)
    sampler = sampler or make_sampler(config)
    made = jax.jit(sampler.sample)(params, key, labels)
    return sample_grid(np.asarray(to_uint8(made)), labels, k, per_class)
