"""DPBA-WGAN on any of the data sets, certified: a WGAN-GP whose critic learns by DP-SGD.

python -m dpaf_jax.main --config=configs/dpba_wgan.py:digits --workdir=runs/dpba_wgan

Digits, two CPU cores under a load of 8 to 24, 2026-11-21, delta = 1e-5, on 328 real test
digits (one generator; 10 000 synthetic images): at certified epsilon = 10 CNN 0.811,
logistic regression 0.823 (2 classifier seeds, both alike); at epsilon = 1 CNN 0.357,
logistic regression 0.247 (one seed, 3 epochs): 1469 images are too few for it. Training 39
and 41 min, each stopped and resumed once, of which about 4 were the process's own.

MNIST at certified epsilon = 10, 20 000 synthetic images, one seed, one core under a load of 6
to 10: CNN 0.870, logistic regression 0.829; 30 min, evaluation included. At epsilon = 1:
0.855 and 0.800; 23 min. Fashion-MNIST with half the steps, 10 000 synthetic images and one run
each, a shared core, 2026-11-28: 0.683 at 1 and 0.695 at 10, 19 min.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = sources.on(argument, 'dpba_wgan')
    # Both terms in each clipped gradient: alternation cost 0.16 of accuracy on the digits.
    config.dpba_wgan.alternate = False
    if not sources.is_digits(argument):
        config.dpba_wgan.batch_size = 512
        config.dpba_wgan.generator_steps = 600
        config.dpba_wgan.generator_batch_size = 128
    return config
