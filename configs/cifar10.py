"""CIFAR-10: 50 000 colour images of 32 x 32 in ten classes.

tfds build cifar10 --file_format=array_record
python -m dpaf_jax.main --config=configs/cifar10.py --workdir=runs/cifar10

The same as `recommended.py:cifar10`, whose head has figures of the same images as an npz
archive. The other variants are not measured yet.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'recommended') -> ConfigDict:
    """Returns the config; `:one_shot`, `:canonical`, `:printed`: see variants."""
    config = default.get_config()
    config.data.source = 'tfds:cifar10'
    config.data.channels = 3
    config.data.num_examples = 50000
    return variants.colour32(variants.photographs(config, variant), variant)
