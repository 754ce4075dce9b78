"""The embedded 8 x 8 digits of scikit-learn, at 16 x 16: no download, minutes on a CPU.

python -m dpaf_jax.main --config=configs/digits.py --workdir=runs/digits

The same as `recommended.py:digits`. `:one_shot`, without labeller, one of two CPU cores,
2026-11-23: training 82 s; CNN 0.950 +- 0.006 on 328 real test digits at certified epsilon =
10, delta = 1e-5 (5 classifiers, one generator; 10 000 synthetic images).
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'recommended') -> ConfigDict:
    """Returns the config; `:one_shot`, `:canonical`, `:printed`: see variants."""
    config = default.get_config()
    config.data.num_examples = 1469  # 1797 less the test fraction of 0.2
    config.samples.num = 10000
    variants.choose(config, variant)
    if variant == 'recommended':
        config.dpaf.generator_steps = 400  # of 8 x 8: as accurate as 2000
        # Squares of 4 x 4 are a quarter of such an image: there is no grain to see. No run has
        # had `leaves` and `kinds`.
        config.dpaf.taps = 'count,contrast,fourier,wavelet,shape,labeller'
        # The network in each of the generator's steps would double the time.
        config.dpaf.classifier.features = 'wavelet'
        config.dpaf.generator.whiten_below = 0.02  # a shorter row has a shorter noise
        config.networks.generator = 'styled'
    if variant == 'one_shot':
        config.networks.layers = 'C1-C1-x'
        config.dpaf.taps = 'count,fourier,wavelet'  # clearer strokes than with conv2
        config.dpaf.generator_steps = 1200
    if variant == 'canonical':
        config.dpaf.batch_size = 60
        config.dpaf.epochs = 80.0
        config.networks.generator = 'styled'
        config.dpaf.taps = 'fourier,conv2'  # few steps: more taps want more of them
    return config
