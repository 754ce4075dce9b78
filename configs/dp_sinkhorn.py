"""DP-Sinkhorn on any of the data sets: optimal transport, sanitised at the images.

python -m dpaf_jax.main --config=configs/dp_sinkhorn.py:digits --workdir=runs/dp_sinkhorn
"""

from ml_collections import ConfigDict

from configs import variants


def get_config(data: str = 'mnist') -> ConfigDict:
    """Returns a data set's config with this method: `:digits`, `:mnist`, ..."""
    config = variants.on(data, 'dp_sinkhorn')
    config.dp_sinkhorn.cell = 2
    if data != 'digits':
        config.dp_sinkhorn.generator_steps = 6000
    return config
