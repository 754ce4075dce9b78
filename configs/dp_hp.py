"""DP-HP on any of the data sets: Hermite features, released once.

python -m dpaf_jax.main --config=configs/dp_hp.py:digits --workdir=runs/dp_hp
"""

from ml_collections import ConfigDict

from configs import variants


def get_config(data: str = 'mnist') -> ConfigDict:
    """Returns a data set's config with this method: `:digits`, `:mnist`, ..."""
    config = variants.on(data, 'dp_hp')
    if data != 'digits':
        config.dp_hp.generator_steps = 1000
    return config
