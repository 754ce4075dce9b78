"""GS-WGAN on any of the data sets: critics on disjoint records, sanitised gradients.

python -m dpaf_jax.main --config=configs/gs_wgan.py:digits --workdir=runs/gs_wgan

MNIST at certified epsilon = 10 (5000 synthetic images, one generator and classifier seed, one
core under a load of 10, 2026-11-26): CNN 0.257, logistic regression 0.185, training 24 min.
Shapes of classes begin to show. docs/explanation/gs_wgan.md says what noise epsilon = 10
needs.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = sources.on(argument, 'gs_wgan')
    if not sources.is_digits(argument):
        config.gs_wgan.cell = 4
        config.networks.layers = ''  # by the size of what is left
        config.gs_wgan.batch_size = 60
        config.gs_wgan.critics_per_turn = 20
        config.gs_wgan.generator_steps = 600
        config.gs_wgan.discriminator_learning_rate = 3e-3
        config.gs_wgan.generator_learning_rate = 2e-3
        # Below any critic's slope, so that all of them count alike.
        config.gs_wgan.l2_clip_norm = 0.05
        config.gs_wgan.ema_decay = 0.95
    return config
