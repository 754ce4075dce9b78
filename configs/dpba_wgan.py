"""DPBA-WGAN on any of the data sets, certified: a WGAN-GP whose critic learns by DP-SGD.

python -m dpaf_jax.main --config=configs/dpba_wgan.py:digits --workdir=runs/dpba_wgan
"""

from ml_collections import ConfigDict

from configs import celeba64, default, variants


def get_config(data: str = 'mnist') -> ConfigDict:
    """Returns a data set's config: `:digits`, `:mnist`, ..., also `:svhn`, `:celeba64`."""
    if data == 'svhn':
        config = _svhn()
    elif data == 'celeba64':
        config = celeba64.get_config('gender')
    else:
        config = variants.on(data, 'dpba_wgan')
    config.method = 'dpba_wgan'
    if data != 'digits':
        config.dpba_wgan.batch_size = 1024
        config.dpba_wgan.width = 16
        config.dpba_wgan.fc_width = 64
        config.dpba_wgan.discriminator_steps = 10
        config.dpba_wgan.generator_steps = 600
    return config


def _svhn() -> ConfigDict:
    """Street View House Numbers: 73 257 colour images of 32 x 32 in ten classes."""
    config = default.get_config()
    config.data.source = 'tfds:svhn_cropped'
    config.data.image_size = 32
    config.data.channels = 3
    config.data.num_examples = 73257
    config.networks.layers = 'C1-C1-C1'
    return config
