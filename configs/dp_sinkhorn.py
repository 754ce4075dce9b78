"""DP-Sinkhorn on any of the data sets: optimal transport, sanitised at the images.

python -m dpaf_jax.main --config=configs/dp_sinkhorn.py:digits --workdir=runs/dp_sinkhorn

Digits at certified epsilon = 10, delta = 1e-5, 2000 synthetic images (one generator and
classifier seed, 2 CPU cores under a load of 10, 2026-11-25): CNN 0.250, logistic regression
0.180, training 7 min 46 s. The images show no digits yet: docs/explanation/dp_sinkhorn.md says
what would be tried next.
"""

from ml_collections import ConfigDict

from configs import variants


def get_config(data: str = 'mnist') -> ConfigDict:
    """Returns a data set's config with this method: `:digits`, `:mnist`, ..."""
    config = variants.on(data, 'dp_sinkhorn')
    if data != 'digits':
        config.dp_sinkhorn.cell = 2
        config.dp_sinkhorn.generator_steps = 20000
    return config
