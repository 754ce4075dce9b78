"""PEARL on any of the data sets: characteristic functions, weighed by a critic.

python -m dpaf_jax.main --config=configs/pearl.py:digits --workdir=runs/pearl
"""

from ml_collections import ConfigDict

from configs import variants


def get_config(data: str = 'mnist') -> ConfigDict:
    """Returns a data set's config with this method: `:digits`, `:mnist`, ..."""
    config = variants.on(data, 'pearl')
    if data != 'digits':
        config.pearl.generator_steps = 1000
    return config
