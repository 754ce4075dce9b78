"""DPDM: a diffusion model by DP-SGD with EDM's noise levels, on any of the image data sets.

python -m dpaf_jax.main --config=configs/dpdm.py --workdir=runs/dpdm
python -m dpaf_jax.main --config=configs/dpdm.py:mnist --workdir=runs/dpdm_mnist \
        --config.data.source=npz:/path/to/mnist.npz

Sizes are for less than an hour of one CPU core; those for a GPU stand in
dpaf_jax/tables/scales.py. What it gives: docs/explanation/dpdm.md.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'digits') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist`, `mnist,1`."""
    config = sources.on(argument, 'dpdm')
    # A sample costs as much as dozens of the others'.
    config.samples.num = sources.num_samples(argument, 5000)
    dpgen = config.dpgen
    dpgen.label_dropout, dpgen.guidance = 0.0, 1.0
    dpgen.num_levels, dpgen.sigma_min = 18, 0.02
    # Few steps learn little of what is drawn seldom, and classes show at sigma 1 and above.
    config.dpdm.p_mean = 0.0
    if not sources.is_digits(argument):
        dpgen.patch = 4
        dpgen.width = 24
        # Short of computing time rather than of privacy: many steps, few draws each.
        dpgen.batch_size = 256
        dpgen.multiplicity = 2
        dpgen.steps = 300
        dpgen.learning_rate = 3e-3
    return config
