"""DataLens on digits, MNIST or Fashion-MNIST: signs of teachers' largest gradients.

python -m dpaf_jax.main --config=configs/datalens.py:mnist --workdir=runs/datalens_mnist \
        --config.data.source=npz:/path/to/mnist.npz

Teachers and student are those of configs/g_pate.py. What it gives stands in
docs/explanation/datalens.md.
"""

from ml_collections import ConfigDict

from configs import g_pate


def get_config(data: str = 'digits') -> ConfigDict:
    """Returns a data set's config with this method: `:digits`, `:mnist`, ...."""
    config = g_pate.get_config(data)
    config.method = 'datalens'
    if data == 'digits':
        config.g_pate.cell = 1
        config.datalens.top_k = 8
    else:
        config.g_pate.steps = 300
        config.datalens.threshold = 0.2
    return config
