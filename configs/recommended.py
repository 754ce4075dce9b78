"""What to start with on data of your own: DPAF's one-shot table with a labeller.

python -m dpaf_jax.main --config=configs/recommended.py:digits --workdir=runs/digits
python -m dpaf_jax.main --config=configs/recommended.py:folder:/path/to/images \
        --workdir=runs/mine --config.data.num_classes=4 --config.data.num_examples=12000 \
        --config.data.image_size=32 --config.data.channels=3 --config.privacy.epsilon=1
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(source: str = 'digits') -> ConfigDict:
    """Returns the recommended config of a data set's name or of a source with its path.

    Args:
        source: digits, mnist, fashion_mnist; or as `data.source`, such as folder:/path.
    """
    if source in variants.DATA:
        return variants.labelled(variants.on(source, 'dpaf'))
    config = default.get_config()
    config.data.source = source
    config.data.image_size = 32
    config.networks.layers = 'C1-C1-x'
    config.dpaf.generator_steps = 4000
    return variants.labelled(config)
