"""DPAF's sampler: a generator, and a labeller where phase 1 has learnt one."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from dpaf_jax.config import Config
from dpaf_jax.config.methods.dpaf import COMBINED, LEAVES
from dpaf_jax.networks.fixed.wavelets import num_features, wavelet_features
from dpaf_jax.networks.images import mirrored
from dpaf_jax.networks.perceptual import features as perceptual
from dpaf_jax.networks.perceptual.features import NETWORKS
from dpaf_jax.networks.rows import side_by_side, unit_rows
from dpaf_jax.release.samplers.latent import LatentSampler, latent_sampler
from dpaf_jax.release.samplers.mending.warp import warped
from dpaf_jax.release.samplers.protocol import Params
from dpaf_jax.runtime.errors import UserError

GENERATOR, LABELLER = 'generator', 'labeller'
# Nearer to real images than 1, and nearly as accurate
# (docs/research/2026-11-27-what-is-drawn.md).
GREY_SCALE, COLOUR_SCALE = 0.85, 0.7


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
        return warped(jax.random.fold_in(key, 1), images, warp(self.config))

    def label(self, params: Params, images: jax.Array) -> jax.Array:
        """See `LabellingSampler`."""
        known = params[LABELLER]
        logits = labeller_features(self.config, images) @ known['weights']
        return jnp.argmax(logits + known.get('bias', 0.0), axis=1)


def init_weights(config: Config) -> Params:
    """A labeller's before it has learnt, zeros: `weights` [F, K], perhaps a `bias` [K]."""
    reads, classes = config.dpaf.classifier.features, config.data.num_classes
    weights = {'weights': jnp.zeros((sum(num_read(config)), classes))}
    return weights | {'bias': jnp.zeros(classes)} if reads == COMBINED else weights


def read_by(reads: str) -> tuple[str, ...]:
    """The kinds of features that a labeller with these `classifier.features` reads."""
    return ('wavelet', LEAVES) if reads == COMBINED else (reads,)


def num_read(config: Config) -> list[int]:
    """How many columns each of them has."""
    size, channels = config.data.image_size, config.data.channels
    return [
        perceptual.num_features(kind, size)
        if kind in NETWORKS
        else num_features(size, channels)
        for kind in read_by(config.dpaf.classifier.features)
    ]


def labeller_features(config: Config, images: jax.Array) -> jax.Array:
    """What a released labeller is linear on.

    Args:
        config: of the run.
        images: [B, H, W, C] float32 in [-1, 1].

    Returns:
        [B, F] float32 of norm at most 1.

    Raises:
        UserError: the public network that it reads is not installed.
    """
    return side_by_side(parts_read(config, images))


def parts_read(config: Config, images: jax.Array) -> list[jax.Array]:
    """Features by their kind, of norm at most 1 each: what `labeller_features` joins.

    Where an image mirrored from left to right has the same label, those of the mean of both:
    what tells one from the other would bring nothing but noise.
    """
    seen = _parts(config, images)
    if not config.dpaf.mirrored:
        return seen
    others = _parts(config, mirrored(images))
    return [unit_rows(one + other) for one, other in zip(seen, others, strict=True)]


def _parts(config: Config, images: jax.Array) -> list[jax.Array]:
    return [
        perceptual.network_features(kind, NETWORKS[kind].params(), images)
        if kind in NETWORKS
        else wavelet_features(images)
        for kind in read_by(config.dpaf.classifier.features)
    ]


def labelled(generator: Params, labeller: Params) -> Params:
    """The parameters of a `LabelledSampler`."""
    return {GENERATOR: generator, LABELLER: labeller}


def dpaf_sampler(config: Config) -> LatentSampler | LabelledSampler:
    """DPAF's: with a labeller where phase 1 has learnt one."""
    generator = dataclasses.replace(
        latent_sampler(config),
        scale=latent_scale(config),
        mirrors=config.dpaf.mirrored,
        denoise=config.dpaf.generator.denoise,
    )
    if config.dpaf.classifier.private == LABELLER:
        return LabelledSampler(generator, config)
    return generator


def latent_scale(config: Config) -> float:
    """The asked one, or what images of so many channels look best with."""
    asked = config.dpaf.generator.latent_scale
    return asked or (COLOUR_SCALE if config.data.channels == 3 else GREY_SCALE)


def warp(config: Config) -> float:
    """How strongly images are bent. A generator of few records is less various without it."""
    asked = config.dpaf.generator
    return (config.has_few_records and asked.warp_of_few) or asked.warp


def truncated(config: Config, truncation: float) -> Config:
    """The config of a sampler that draws nearer to the middle, and does not bend.

    Latent draws `truncation` times as wide give images that look more like real ones, and are
    less various: the truncation trick (Brock, Donahue and Simonyan 2019). Below 1 they teach
    classifiers less.

    Args:
        config: of a release.
        truncation: above 0; 1 changes nothing.

    Raises:
        UserError: another method than dpaf, or no such number.
    """
    if not 0 < truncation <= 1:  # NaN, too
        problem, remedy = f'is {truncation}', 'Give a number above 0, at most 1'
        raise UserError('truncation', problem, remedy)
    if truncation == 1:
        return config
    if config.method != 'dpaf':
        problem = f'is {truncation:g}, for a release of {config.method}'
        raise UserError('truncation', problem, 'Leave it out: only dpaf has it')
    scale = truncation * latent_scale(config)
    return _with_generator(config, latent_scale=scale, warp=0.0, warp_of_few=0.0)


def unbent(config: Config) -> Config:
    """The config of a sampler that does not bend: bends teach classifiers, not eyes."""
    if config.method != 'dpaf':
        return config
    return _with_generator(config, warp=0.0, warp_of_few=0.0)


def as_trained(config: Config) -> Config:
    """The config that draws what the generator was trained to draw, and does nothing to it.

    Whoever has a release can draw so. What is done to images afterwards protects nobody, and
    attacks must not be misled by it. Images alone are meant: a labeller of both sides of an
    image reads one of them so.
    """
    if config.method != 'dpaf':  # a release holds its own method's section alone
        return config
    plain = _with_generator(
        config, latent_scale=1.0, denoise=0.0, warp=0.0, warp_of_few=0.0
    )
    return dataclasses.replace(
        plain, dpaf=dataclasses.replace(plain.dpaf, mirrored=False)
    )


def _with_generator(config: Config, **fields: Any) -> Config:
    generator = dataclasses.replace(config.dpaf.generator, **fields)
    dpaf = dataclasses.replace(config.dpaf, generator=generator)
    return dataclasses.replace(config, dpaf=dpaf)
