"""DP-Kernel on any of the data sets: a mean of kernels, released once as one noisy embedding.

python -m dpaf_jax.main --config=configs/dp_kernel.py:digits --workdir=runs/dp_kernel

MNIST at certified epsilon = 10, 1000 generator steps, one core under a load of 8, 2026-11-25:
training 8 min 44 s, and the images are digits. Accuracies: docs/results.md, small budget.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = sources.on(argument, 'dp_kernel')
    if not sources.is_digits(argument):
        config.dp_kernel.generator_steps = 1000
    return config
