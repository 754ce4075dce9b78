"""LSUN's bedrooms at 64 x 64: 3 033 042 colour images without labels, one class.

tfds build lsun/bedroom --file_format=array_record
python -m dpaf_jax.main --config=configs/lsun_bedroom.py --workdir=runs/bedroom

TFDS has the images without a label, so all are of one class: nothing is to be classified, and
fidelity alone is measured. A hundredth of them is held out for that. A part of the data set
in one sub-folder does as well: --config.data.source=folder:/path --config.data.num_examples=N.
Decoded at 64 x 64 they take 37 GB. Not measured yet.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'recommended') -> ConfigDict:
    """Returns the config; `:one_shot`, `:canonical`, `:printed`: see variants."""
    config = default.get_config()
    config.data.source = 'tfds:lsun/bedroom'
    config.data.num_classes = 1
    config.data.image_size = 64
    config.data.channels = 3
    # A hash draws the hundredth: what is left is 3 002 712 +- 173, and a larger N is public.
    config.data.test_fraction = 0.01
    config.data.num_examples = 3_004_000
    config.privacy.delta = 1e-7
    layers = 'C2-C2-C1' if variant == 'printed' else 'C2-C1-x'
    return variants.large(config, variant, layers)
