"""CelebA at 32 x 32: `:gender` (two classes, the default) or `:hair` (three).

python -m dpaf_jax.main --config=configs/celeba32.py:gender --workdir=runs/celeba32 \
        --config.data.source=celeba:/path/to/celeba

The size of DPDM's, DP-Sinkhorn's and DPImageBench's faces, and of G-PATE's
CelebA-Gender(S). Not measured yet on the whole data set; the first 10 000 faces are, with
`recommended.py` (its head, and docs/results.md), and by gender with `:canonical`: CNN 0.813
and 0.749 at certified epsilon = 10, two generators, 16 and 55 min of a shared core, before
dpaf.mirrored (docs/explanation/algorithm.md).
"""

from ml_collections import ConfigDict

from configs import celeba64, variants


def get_config(argument: str = 'gender') -> ConfigDict:
    """Returns the config: 'gender' or 'hair', a variant, or both with a comma."""
    config = celeba64.get_config(argument)
    return variants.colour32(config, celeba64.variant_of(argument))
