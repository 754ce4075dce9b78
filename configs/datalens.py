"""DataLens on digits, MNIST or Fashion-MNIST: signs of teachers' largest gradients.

python -m dpaf_jax.main --config=configs/datalens.py:mnist --workdir=runs/datalens_mnist \
        --config.data.source=npz:/path/to/mnist.npz

Teachers and student are those of configs/g_pate.py. What it gives stands in
docs/explanation/datalens.md.
"""

from ml_collections import ConfigDict

from configs import g_pate, sources


def get_config(argument: str = 'digits') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = g_pate.get_config(argument)
    config.method = 'datalens'
    if sources.is_digits(argument):
        config.g_pate.cell = 1
        config.datalens.top_k = 8
    else:
        config.g_pate.cell = 2
        config.g_pate.steps = 300
        config.datalens.threshold = 0.2
    return config
