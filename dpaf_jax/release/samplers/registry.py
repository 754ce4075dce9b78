"""From released parameters to images: each method's sampler, by the method's name.

Neither data nor training code can be reached from here: a release needs no more.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from PIL import Image

from dpaf_jax.config import Config
from dpaf_jax.networks.images import to_uint8
from dpaf_jax.release.pictures import sample_grid
from dpaf_jax.release.samplers.condensed import condensed_sampler
from dpaf_jax.release.samplers.dp_gan import dp_gan_sampler
from dpaf_jax.release.samplers.dpaf import dpaf_sampler
from dpaf_jax.release.samplers.dpba_wgan import dpba_wgan_sampler
from dpaf_jax.release.samplers.dpdm import dpdm_sampler
from dpaf_jax.release.samplers.dpgen import score_sampler
from dpaf_jax.release.samplers.latent import latent_sampler
from dpaf_jax.release.samplers.p3gm import phased_sampler
from dpaf_jax.release.samplers.protocol import Params, Sampler
from dpaf_jax.release.samplers.published_dpgen import dpgen_sampler
from dpaf_jax.release.samplers.smooth import (
    dp_sinkhorn_sampler,
    g_pate_sampler,
    gs_wgan_sampler,
)
from dpaf_jax.runtime.errors import UserError

PRIOR = 'prior'  # among released parameters: class probabilities, noisy and paid for
PER_CLASS = 8  # images in a row of a preview
SAMPLERS: dict[str, Callable[[Config], Sampler]] = {
    'dpaf': dpaf_sampler,
    'dpgen': dpgen_sampler,
    'dpdm': dpdm_sampler,
    'feta': score_sampler,
    'dp_merf': latent_sampler,
    'dp_kernel': latent_sampler,
    'dp_hp': latent_sampler,
    'pearl': latent_sampler,
    'ndpdc': condensed_sampler,
    'dp_sinkhorn': dp_sinkhorn_sampler,
    'p3gm': phased_sampler,
    'dp_gan': dp_gan_sampler,
    'dp_cgan': latent_sampler,
    'datalens': g_pate_sampler,
    'pate_gan': g_pate_sampler,
    'g_pate': g_pate_sampler,
    'dpba_wgan': dpba_wgan_sampler,
    'gs_wgan': gs_wgan_sampler,
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


def released_shapes(config: Config) -> Params:
    """Names and shapes of a release's parameters: the sampler's, and noisy class shares."""
    shapes: Params = jax.eval_shape(make_sampler(config).init, jax.random.key(0))
    if config.data.noisy_prior:
        shares = jax.ShapeDtypeStruct((config.data.num_classes,), np.float32)
        shapes = {**shapes, PRIOR: {'classes': shares}}
    return shapes


def preview(
    config: Config, params: Params, key: jax.Array, sampler: Sampler | None = None
) -> Image.Image:
    """A picture of samples, a row per class: what progress is judged by.

    Args:
        config: of the run.
        params: the sampler's.
        key: of the draws.
        sampler: default: the method's.
    """
    k = config.data.num_classes
    labels = np.repeat(np.arange(k), PER_CLASS)
    made = _drawing(sampler or make_sampler(config))(params, key, labels)
    return sample_grid(np.asarray(to_uint8(made)), labels, k, PER_CLASS)


@functools.lru_cache(maxsize=4)
def _drawing(sampler: Sampler) -> Callable[..., Any]:
    """The draw of a sampler: one program for all previews of a run."""
    return jax.jit(sampler.sample)
