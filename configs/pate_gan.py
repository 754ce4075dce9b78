"""PATE-GAN on digits, MNIST or Fashion-MNIST, or on a table: votes on whole images.

python -m dpaf_jax.main --config=configs/pate_gan.py:mnist --workdir=runs/pate_gan_mnist \
        --config.data.source=npz:/path/to/mnist.npz

Teachers and generator are those of configs/g_pate.py; `:table` is as there.

One of two CPU cores, shared with much other work, 2026-11-26, certified epsilon = 10, delta =
1e-5. MNIST (20 000 synthetic images, one seed): CNN 0.615, logistic regression 0.670; training
13 min. Digits do not work, as with G-PATE: CNN 0.178. More: docs/explanation/pate_gan.md.
"""

from ml_collections import ConfigDict

from configs import g_pate, sources


def get_config(argument: str = 'digits') -> ConfigDict:
    """Returns the config of a source, which `sources.on` explains."""
    config = g_pate.get_config(argument)
    config.method = 'pate_gan'
    config.g_pate.generator_learning_rate = 4e-4
    if not sources.is_table(argument) and not sources.is_digits(argument):
        config.g_pate.teachers = 1000
        config.g_pate.steps = 800
        config.g_pate.cell = 3
        config.g_pate.ema_decay = 0.99
    return config
