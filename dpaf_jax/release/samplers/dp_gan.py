"""DP-GAN's sampler: one pass of the generator of the network that it chose."""

from dpaf_jax.config import Config
from dpaf_jax.networks.architecture import make_architecture
from dpaf_jax.networks.gans.biggan import BigGanGenerator
from dpaf_jax.networks.gans.pggan import PgganGenerator
from dpaf_jax.networks.generator import generator_widths
from dpaf_jax.release.samplers.latent import LatentSampler, latent_sampler

GENERATORS = {'biggan': BigGanGenerator, 'pggan': PgganGenerator}


def dp_gan_sampler(config: Config) -> LatentSampler:
    """Of the generator that `network` names, fully grown."""
    network = config.dp_gan.network
    if network == 'dcgan':
        return latent_sampler(config)
    sides, inner = make_architecture(config).sides, generator_widths(config)
    widths = (inner[0], *inner)
    data = config.data
    generator = GENERATORS[network](sides, widths, data.channels, data.num_classes)
    return LatentSampler(generator, config.networks.z_dim)
