"""CelebA at 64 x 64: `:gender` (two classes, the default) or `:hair` (three).

python -m dpaf_jax.main --config=configs/celeba64.py:hair --workdir=runs/hair \
        --config.data.source=celeba:/path/to/celeba

On the first 10 000 faces by gender, at certified epsilon = 10: CNN 0.849, one generator, an
hour of a CPU core, recommended settings of 2026-11-27 (docs/results.md). `:gender,canonical`
on the same: CNN 0.671 (commonest class 0.569), two hours of a shared core, 3.8 GB, faces of a
few templates with hatching (2026-11-29). The whole data set is not measured yet. Without data
--stage=plan takes --config.data.num_examples=162770, its official training split.
"""

from ml_collections import ConfigDict

from configs import default, variants

CLASSES = {'gender': 2, 'hair': 3}  # female, male; black, blond, brown


def get_config(argument: str = 'gender') -> ConfigDict:
    """Returns the CelebA config: 'gender' or 'hair', a variant, or both with a comma."""
    words = argument.split(',')
    attribute = next((word for word in words if word in CLASSES), 'gender')
    variant = variant_of(argument)
    config = default.get_config()
    config.data.source = 'celeba:celeba'
    config.data.attribute = attribute
    config.data.num_classes = CLASSES[attribute]
    config.data.image_size = 64
    config.data.channels = 3
    config.privacy.delta = 1e-6  # N is between 10^5 and 10^6
    return variants.large(config, variant, 'C2-C2-C1')


def variant_of(argument: str) -> str:
    """The variant in an argument such as 'hair,printed'."""
    words = argument.split(',')
    return next((word for word in words if word not in CLASSES), 'recommended')
