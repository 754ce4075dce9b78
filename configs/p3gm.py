"""P3GM on any of the data sets: principal directions, a Gaussian a class, then a decoder.

python -m dpaf_jax.main --config=configs/p3gm.py:digits --workdir=runs/p3gm
python -m dpaf_jax.main --config=configs/p3gm.py:mnist --workdir=runs/p3gm_mnist \
        --config.data.source=npz:/path/to/mnist.npz

Minutes of one CPU core. What it gives: docs/explanation/p3gm.md.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = sources.on(argument, 'p3gm')
    if sources.is_digits(
        argument
    ):  # few records: moments of few directions, with less noise
        config.privacy.budgets = '30%,rest,45%'
        config.p3gm.dims = 8
        config.p3gm.width = 50
        config.p3gm.learning_rate = 4e-3
    else:
        config.privacy.budgets = '15%,rest,15%'  # pca, decoder, em
        config.p3gm.dims = 30
        config.p3gm.batch_size = 1024
        config.p3gm.steps = 800
    return config
