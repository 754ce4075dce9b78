"""Street View House Numbers: 73 257 colour images of 32 x 32 in ten classes.

tfds build svhn_cropped --file_format=array_record
python -m dpaf_jax.main --config=configs/svhn.py --workdir=runs/svhn

Splits are TFDS's train and test; its split `extra` is not read. Not measured yet.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'one_shot') -> ConfigDict:
    """Returns the config; `:canonical` and `:printed`: small batches, see variants."""
    config = variants.choose(default.get_config(), variant)
    config.data.source = 'tfds:svhn_cropped'
    config.data.num_examples = 73257
    return variants.colour32(config, variant)
