"""FETA: a score network that learns from a first release, then from the private images.

python -m dpaf_jax.main --config=configs/feta.py --workdir=runs/feta
python -m dpaf_jax.main --config=configs/feta.py:mnist --workdir=runs/feta_mnist \
        --config.data.source=npz:/path/to/mnist.npz

Sizes are for less than an hour of one CPU core; those for a GPU stand in
dpaf_jax/tables/scales.py. What it gives: docs/explanation/feta.md.
"""

from ml_collections import ConfigDict

from configs import recommended, sources


def get_config(argument: str = 'digits') -> ConfigDict:
    """Returns the config of a source, which `recommended.py` explains: `mnist,1`."""
    config = recommended.get_config(argument)
    config.method = 'feta'
    # The score network learns what it is shown. Without grain it has not been tried.
    generator = config.dpaf.generator
    generator.warp, generator.warp_of_few = 0.0, 0.0
    generator.denoise, generator.latent_scale = 0.0, 1.0
    dpgen = config.dpgen
    dpgen.guidance = 1.0
    if sources.is_digits(argument):
        config.feta.learning_rate = 5e-3
        config.samples.num = 3000
        dpgen.warm_start_steps = 600
        dpgen.steps = 30
        return config
    # A sample costs as much as dozens of the others'.
    config.samples.num = sources.num_samples(argument, 10000)
    config.dpaf.generator_steps = 1000
    # Cells of 4 x 4 pixels are too many for so few maps: images are noisy (the page).
    dpgen.patch = 2
    dpgen.width, dpgen.max_width = 32, 64
    dpgen.sigma_max = 8.0
    dpgen.warm_start_steps = 3000
    dpgen.batch_size = 1024
    dpgen.multiplicity = 1
    dpgen.steps = 120
    dpgen.learning_rate = 1e-3
    dpgen.ema_decay = 0.98
    return config
