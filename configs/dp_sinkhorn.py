"""DP-Sinkhorn on any of the data sets: optimal transport, sanitised at the images.

python -m dpaf_jax.main --config=configs/dp_sinkhorn.py:digits --workdir=runs/dp_sinkhorn

MNIST at certified epsilon = 10, delta = 1e-5, 10 000 synthetic images (one generator and
classifier seed, one CPU core under a load of 10, 2026-11-26): CNN 0.609, logistic regression
0.658, training 16 min. Most images are coarse digits. On the embedded digits, which are too
few, a CNN learns 0.250 (docs/explanation/dp_sinkhorn.md).
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = sources.on(argument, 'dp_sinkhorn')
    if not sources.is_digits(argument):
        config.dp_sinkhorn.cell = 4
        config.networks.layers = ''  # by the size of what is left
        config.dp_sinkhorn.generator_steps = 20000
    return config
