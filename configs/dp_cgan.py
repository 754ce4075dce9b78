"""DP-CGAN on any of the data sets: reals and fakes are clipped each alone.

python -m dpaf_jax.main --config=configs/dp_cgan.py:digits --workdir=runs/dp_cgan
python -m dpaf_jax.main --config=configs/dp_cgan.py:mnist --workdir=runs/dp_cgan_mnist \
        --config.data.source=npz:/path/to/mnist.npz

Sizes are for less than an hour of one CPU core. What it gives: docs/explanation/dp_cgan.md.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = sources.on(argument, 'dp_cgan')
    if not sources.is_digits(argument):
        config.dp_cgan.batch_size = 512
        config.dp_cgan.discriminator_steps = 5
        config.dp_cgan.generator_steps = 150
    return config
