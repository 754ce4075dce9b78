"""FETA: a score network that learns from a first release, then from the private images.

python -m dpaf_jax.main --config=configs/feta.py --workdir=runs/feta
python -m dpaf_jax.main --config=configs/feta.py:mnist --workdir=runs/feta_mnist \
        --config.data.source=npz:/path/to/mnist.npz

For a GPU (docs/explanation/feta.md).
"""

from ml_collections import ConfigDict

from configs import recommended


def get_config(argument: str = 'digits') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist,1`."""
    config = recommended.get_config(argument)
    config.method = 'feta'
    config.dpaf.generator.warp = 0.0  # the score network learns what it is shown
    dpgen = config.dpgen
    dpgen.guidance = 1.0
    if argument.partition(',')[0] == 'digits':
        dpgen.warm_start_steps = 400
        return config
    dpgen.width = 64
    dpgen.patch = 2
    dpgen.sigma_max = 8.0
    dpgen.sigma_min = 0.05
    dpgen.num_levels = 20
    dpgen.warm_start_steps = 3000
    dpgen.batch_size = 4096
    dpgen.microbatch = 512
    dpgen.multiplicity = 4
    dpgen.steps = 500
    dpgen.learning_rate = 1e-3
    dpgen.ema_decay = 0.98
    return config
