"""As `recommended.py`, with features of a public network: declared public data.

python -m dpaf_jax.main --config=configs/public.py:folder:/path/to/images,3 \
        --workdir=runs/mine

Among what DPAGG sums are features of EfficientNet-Lite0, which has learnt on ImageNet; the
labeller reads them alone. Epsilon is as true as without: the network is the same whatever the
private images are. But its images are not covered, and the release says so. To compare methods
without public data take `recommended.py`. Needs the extra `fidelity`.
"""

from ml_collections import ConfigDict

from configs import recommended, variants


def get_config(argument: str = 'digits') -> ConfigDict:
    """Returns the config; `argument` is a source and epsilon, as for `recommended.py`."""
    return variants.with_public_features(recommended.get_config(argument))
