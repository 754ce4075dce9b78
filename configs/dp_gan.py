"""DP-GAN on any of the data sets: a discriminator that learns by DP-SGD.

python -m dpaf_jax.main --config=configs/dp_gan.py:digits --workdir=runs/dp_gan

Digits, two CPU cores under a load of 9, 2026-11-21, delta = 1e-5, on 328 real test digits (one
classifier seed, one generator; 10 000 synthetic images, 3 epochs): at certified epsilon = 10
CNN 0.838, logistic regression 0.848; training 22 min, of which 3 min were this process's own
(same algorithm and settings, in a draft of the code). At epsilon = 1 (2 seeds, 5 epochs) CNN
0.310 +- 0.011, logistic regression 0.398 +- 0.054; training 7 min 36 s: 1469 images are too
few for it.

MNIST at 10 as it is, one run, 2026-11-30: CNN 0.815, logistic regression 0.758, Frechet
distance 108, from 20 000 images; two hours of a core that other work shared. A discriminator
step takes half a second of two idle cores (docs/explanation/performance.md), so all 6000 some
50 minutes. Fashion-MNIST, and MNIST at 1, have not been run to the end. With 750 steps on 512
images and a thinner discriminator (scale `cpu` of the tables), 10 000 synthetic images, one
run each, a shared core, 2026-11-28: MNIST 0.792 at 1, 14 min with the evaluation, and 0.643
at 10; Fashion-MNIST 0.647 at 1, 13 min, and 0.684 at 10.

DP-BigGAN and DP-PGGAN (docs/explanation/dp_gan.md): --config.dp_gan.network=biggan, or pggan,
which learns at some ten times the rates: --config.dp_gan.discriminator_learning_rate=0.01 and
--config.dp_gan.generator_learning_rate=0.01.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = sources.on(argument, 'dp_gan')
    if not sources.is_digits(argument):
        config.dp_gan.batch_size = 1024
        config.dp_gan.width = 16
        config.dp_gan.fc_width = 64
        config.dp_gan.discriminator_steps = 10
        config.dp_gan.generator_steps = 600
    return config
