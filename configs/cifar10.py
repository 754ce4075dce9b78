"""CIFAR-10: 50 000 colour images of 32 x 32 in ten classes.

tfds build cifar10 --file_format=array_record
python -m dpaf_jax.main --config=configs/recommended.py:cifar10,1 --workdir=runs/cifar10

What is measured, with `recommended.py` on the same images as an npz archive, stands in that
file's head and in docs/results.md. The settings here alone are not measured yet.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'one_shot') -> ConfigDict:
    """Returns the config; `:canonical` and `:printed`: small batches, see variants."""
    config = variants.choose(default.get_config(), variant)
    config.data.source = 'tfds:cifar10'
    config.data.num_examples = 50000
    return variants.colour32(config, variant)
