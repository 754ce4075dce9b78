"""Street View House Numbers: 73 257 colour images of 32 x 32 in ten classes.

tfds build svhn_cropped --file_format=array_record
python -m dpaf_jax.main --config=configs/svhn.py --workdir=runs/svhn

Splits are TFDS's train and test; its split `extra` is not read. Not measured yet.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'recommended') -> ConfigDict:
    """Returns the config; `:one_shot`, `:canonical`, `:printed`: see variants."""
    config = default.get_config()
    config.data.source = 'tfds:svhn_cropped'
    config.data.channels = 3
    config.data.num_examples = 73257
    return variants.colour32(variants.choose(config, variant), variant)
