"""DP-HP on any of the data sets: Hermite features, released once.

python -m dpaf_jax.main --config=configs/dp_hp.py:digits --workdir=runs/dp_hp

Digits at certified epsilon = 10, delta = 1e-5, 300 generator steps and 5000 synthetic images,
on 328 real test digits (one generator and classifier seed; one core under a load of 8,
2026-11-25; another generator network): CNN 0.927, logistic regression 0.896, training
1 min 29 s.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'mnist') -> ConfigDict:
    """Returns the config of a source, as `sources.on` takes it: `mnist,1`, `table:/path`."""
    config = sources.on(argument, 'dp_hp')
    # The other one may turn black, and stay so (docs/explanation/dp_hp.md).
    config.networks.generator = 'styled'
    if not sources.is_digits(argument):
        config.dp_hp.generator_steps = 1000
    return config
