"""NDPDC on any of the data sets: a few hundred images fitted to noisy random features.

python -m dpaf_jax.main --config=configs/ndpdc.py:digits --workdir=runs/ndpdc
python -m dpaf_jax.main --config=configs/ndpdc.py:mnist --workdir=runs/ndpdc_mnist \
        --config.data.source=npz:/path/to/mnist.npz

Certified epsilon = 10, delta = 1e-5, one of two CPU cores, shared, 2026-11-26: digits (200
images, 2 classifiers) CNN 0.928, logistic regression 0.913; MNIST (800 images, 1 classifier)
0.909 and 0.837. About nine minutes of a core on MNIST. More: docs/explanation/ndpdc.md.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = sources.on(argument, 'ndpdc')
    fields = config.ndpdc
    config.evaluation.epochs = 300  # of few images
    if not sources.is_digits(argument):
        config.evaluation.epochs = 100
        fields.batch_size = 6000
        fields.parts = 2
        fields.steps = 1200
    config.samples.num = sources.num_samples(argument, 0)  # 0: as many as it holds
    return config
