"""DP-MERF on any of the data sets: one noisy mean embedding, and a generator matched to it.

python -m dpaf_jax.main --config=configs/dp_merf.py:digits --workdir=runs/dp_merf

Digits, two CPU cores shared with other work, 2026-11-21, delta = 1e-5, on 328 real test digits
(2 classifier seeds, one generator; 10 000 synthetic images): at certified epsilon = 10 CNN
0.928 +- 0.011, logistic regression 0.924 +- 0.004, training 2 min 2 s. At epsilon = 1, four
generators until 2026-11-30: CNN 0.869 +- 0.018, logistic regression 0.878, a minute and
a half.

With 20 000 synthetic images (one classifier seed and generator), two CPU cores under a load of
7 to 9, on 10 000 real test images: MNIST at certified epsilon = 10 CNN 0.840, logistic
regression 0.836; at 1 0.855 and 0.843. Fashion-MNIST at 10 0.753 and 0.749; at 1 0.756 and
0.750. Training 12 min (the first), 6 min (the others).
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, as `sources.on` takes it: `mnist,1`, `table:/path`."""
    config = sources.on(argument, 'dp_merf')
    if sources.is_table(argument):
        config.dp_merf.length_scales = (0.1, 0.3)
    elif not sources.is_digits(argument):
        config.dp_merf.generator_steps = 2000
    return config
