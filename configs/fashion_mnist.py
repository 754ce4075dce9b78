"""Fashion-MNIST: 60 000 grey images of 28 x 28 in ten classes.

python -m dpaf_jax.main --config=configs/fashion_mnist.py --workdir=runs/fashion_mnist \
        --config.data.source=npz:/path/to/fashion_mnist.npz

Two CPU cores shared with other work, 2026-11-21: training 15 min, 43 min with the evaluation
of 5 seeds. At certified epsilon = 10, delta = 1e-5: CNN 0.778 +- 0.003, logistic regression
0.771 +- 0.001 on the 10 000 real test images (5 classifier seeds, one generator). The settings
are MNIST's, unchanged.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'one_shot') -> ConfigDict:
    """Returns the config; `:canonical` and `:printed`: small batches, see variants."""
    config = variants.choose(default.get_config(), variant)
    config.data.source = 'tfds:fashion_mnist'
    config.data.image_size = 28
    config.data.num_examples = 60000
    if variant == 'one_shot':
        config.networks.layers = 'C1-C1-x'
        config.dpaf.taps = 'count,fourier,conv2'
        config.dpaf.generator_steps = 4000
    return config
