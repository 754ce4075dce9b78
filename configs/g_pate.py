"""G-PATE."""

from ml_collections import ConfigDict

from configs import variants


def get_config(data: str = 'digits') -> ConfigDict:
    """Returns the digits config; `:mnist` or `:fashion_mnist` for those."""
    return variants.on(data, 'g_pate')
