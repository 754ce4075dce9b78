"""DP-MERF on any of the data sets: one noisy mean embedding, and a generator matched to it.

python -m dpaf_jax.main --config=configs/dp_merf.py:digits --workdir=runs/dp_merf

"""

from ml_collections import ConfigDict

from configs import digits, fashion_mnist, mnist

DATA = {'digits': digits, 'mnist': mnist, 'fashion_mnist': fashion_mnist}


def get_config(data: str = 'mnist') -> ConfigDict:
    """Returns a data set's config with this method: `:digits`, `:mnist`, ..."""
    if data not in DATA:
        raise ValueError(f'data is {data!r}. Choose one of {", ".join(DATA)}.')
    config: ConfigDict = DATA[data].get_config()
    config.method = 'dp_merf'
    if data != 'digits':
        config.dp_merf.generator_steps = 2000
    return config
