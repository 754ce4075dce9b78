"""FFHQ-Gender: faces at 128 x 128 in two classes, labels from the FFHQ features JSON.

python -m dpaf_jax.main --config=configs/ffhq128.py --workdir=runs/ffhq \
        --config.data.source=ffhq:/path/to/images \
        --config.data.annotations=/path/to/ffhq-features/json

Not measured yet: only its plan and runs at tiny size have been made.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'one_shot') -> ConfigDict:
    """Returns the FFHQ config; `:canonical` and `:printed`: small batches, see variants."""
    config = variants.choose(default.get_config(), variant)
    config.data.source = 'ffhq:ffhq'
    config.data.attribute = 'gender'
    config.data.num_classes = 2  # female, male
    config.data.image_size = 128
    config.data.channels = 3
    config.data.test_fraction = 0.1  # as in the paper
    config.privacy.delta = 1e-6  # N is about 63 000
    config.networks.layers = 'C3-C1-x'
    if variant == 'one_shot':
        config.networks.generator_width = 16
        config.dpaf.taps = 'count,fourier,conv1,conv2'
        config.dpaf.generator_steps = 4000
        config.dpaf.generator.batch_size = 64
    elif variant == 'canonical':
        config.dpaf.epochs = 4.0
    else:
        # In five epochs Theorem 5 could not state DPAGG's 0.1, at any noise.
        config.dpaf.epochs = 1.0
        config.dpaf.batch_size = 64
        config.dpaf.generator.batch_size = 64
        config.dpaf.conv2.batch_size = 512
    return config
