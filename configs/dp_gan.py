"""DP-GAN on any of the data sets: a discriminator that learns by DP-SGD.

python -m dpaf_jax.main --config=configs/dp_gan.py:digits --workdir=runs/dp_gan

"""

from ml_collections import ConfigDict

from configs import digits, fashion_mnist, mnist

DATA = {'digits': digits, 'mnist': mnist, 'fashion_mnist': fashion_mnist}


def get_config(data: str = 'mnist') -> ConfigDict:
    """Returns a data set's config with this method: `:digits`, `:mnist`, ..."""
    if data not in DATA:
        raise ValueError(f'data is {data!r}. Choose one of {", ".join(DATA)}.')
    config: ConfigDict = DATA[data].get_config()
    config.method = 'dp_gan'
    if data != 'digits':
        config.dp_gan.batch_size = 1024
        config.dp_gan.width = 16
        config.dp_gan.fc_width = 64
        config.dp_gan.discriminator_steps = 10
        config.dp_gan.generator_steps = 600
    return config
