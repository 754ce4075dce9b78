"""MNIST: 60 000 grey images of 28 x 28 in ten classes.

python -m dpaf_jax.main --config=configs/mnist.py --workdir=runs/mnist \
        --config.data.source=npz:/path/to/mnist.npz

The same as `recommended.py:mnist`, whose head has its figures. On two shared CPU cores at
certified epsilon = 10, delta = 1e-5, one generator each, small CNN on real test images:

`:one_shot`, without labeller, 2026-11-21: 0.871 +- 0.004 (5 classifiers), training 9 min.
`:canonical`, Algorithm 1 on small class-pure batches and a labeller, 2026-11-27: 0.962 and
0.958 at epsilon 10, two generators; 17 and 21 min of a core that other work shared.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'recommended') -> ConfigDict:
    """Returns the config; `:one_shot`, `:canonical`, `:printed`: see variants."""
    config = default.get_config()
    config.data.source = 'tfds:mnist'
    return variants.grey28(config, variant)
