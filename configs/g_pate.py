"""G-PATE on digits, MNIST or Fashion-MNIST, or on a table.

python -m dpaf_jax.main --config=configs/g_pate.py --workdir=runs/g_pate
python -m dpaf_jax.main --config=configs/g_pate.py:mnist --workdir=runs/g_pate_mnist \
        --config.data.source=npz:/path/to/mnist.npz

Digits hardly work: 1469 images are too few for the number of teachers that the noise asks for.
At certified epsilon = 10, delta = 1e-5, CNN 0.226, logistic regression 0.244 on 328 real test
digits (one run, 3000 synthetic images, a shared core, 2026-11-30; docs/explanation/g_pate.md).

MNIST with 2000 teachers at certified epsilon = 10 (20 000 synthetic images, one run, a shared
core, 2026-11-30): CNN 0.669, logistic regression 0.669; training 5 min. With half the steps,
of CNN: MNIST 0.619 at 1 and 0.596 at 10, Fashion-MNIST 0.552 at 1 and 0.605 at 10.
Tables: docs/explanation/g_pate.md.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'digits') -> ConfigDict:
    """Returns the config of a source, which `sources.on` explains."""
    config = sources.on(argument, 'g_pate')
    g_pate = config.g_pate
    if sources.is_table(argument):
        g_pate.projections = 5
    elif sources.is_digits(argument):
        g_pate.batch_size = 5  # a whole part
    else:
        g_pate.teachers = 2000
        g_pate.batch_size = 8
        g_pate.steps = 500
        if config.data.image_size == 28:  # the one size that was measured
            g_pate.cell = 4
    return config
