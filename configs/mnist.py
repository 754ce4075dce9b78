"""MNIST: 60 000 grey images of 28 x 28 in ten classes.

python -m dpaf_jax.main --config=configs/mnist.py --workdir=runs/mnist \
        --config.data.source=npz:/path/to/mnist.npz

Two CPU cores shared with other work, 2026-11-21: training 9 min, 59 min with the evaluation
of 5 seeds. At certified epsilon = 10, delta = 1e-5: CNN 0.871 +- 0.004, logistic regression
0.866 +- 0.001 on the 10 000 real test images (5 classifier seeds, one generator).

`:canonical`, Algorithm 1 on small class-pure batches, at the same epsilon, 2026-11-25: CNN and
logistic regression 0.849, one run, 8 min of one shared core with the evaluation.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'one_shot') -> ConfigDict:
    """Returns the MNIST config; `:canonical` and `:printed`: small batches, see variants."""
    config = variants.choose(default.get_config(), variant)
    config.data.source = 'tfds:mnist'
    config.data.image_size = 28
    config.data.num_examples = 60000
    if variant == 'one_shot':
        config.networks.layers = 'C1-C1-x'
        config.dpaf.taps = 'count,fourier,conv2'
        config.dpaf.generator_steps = 4000
    return config
