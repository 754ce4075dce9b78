"""GS-WGAN on any of the data sets: critics on disjoint records, sanitised gradients.

python -m dpaf_jax.main --config=configs/gs_wgan.py:digits --workdir=runs/gs_wgan

MNIST at certified epsilon = 10 (20 000 synthetic images, one seed, 2026-11-21): chance, CNN
0.108; so are 1 and Fashion-MNIST. docs/explanation/gs_wgan.md says what noise epsilon = 10
needs.
"""

from ml_collections import ConfigDict

from configs import variants


def get_config(data: str = 'mnist') -> ConfigDict:
    """Returns a data set's config with this method: `:digits`, `:mnist`, ..."""
    config = variants.on(data, 'gs_wgan')
    if data != 'digits':
        config.gs_wgan.batch_size = 200
        config.gs_wgan.generator_steps = 1200
    return config
