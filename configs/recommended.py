"""What to start with on data of your own, at any epsilon.

python -m dpaf_jax.main --config=configs/recommended.py:digits --workdir=runs/digits
python -m dpaf_jax.main --config=configs/recommended.py:mnist,1 --workdir=runs/mnist \
        --config.data.source=npz:/path/to/mnist.npz
python -m dpaf_jax.main --config=configs/recommended.py:folder:/path/to/images,3 \
        --workdir=runs/mine
python -m dpaf_jax.main --config=configs/recommended.py:mnist,1,dpimagebench \
        --workdir=runs/bench --config.data.source=npz:/path/to/mnist.npz

DPAF's one-shot aggregates and a labeller (docs/explanation/algorithm.md). How long they learn
goes by epsilon and the number of records. The word dpimagebench behind epsilon is that
benchmark's protocol (docs/howto/evaluate.md): N = 55 000, delta = 1 / (N ln N), and its
classifiers, for a GPU.

Accuracy of a small CNN at certified epsilon 1 / 3 / 10, a generator each (three of MNIST and
of clothes at 1 and 10), one of two shared CPU cores, 2026-11-27 to 30: MNIST 0.966 / 0.971 /
0.974, Fashion-MNIST 0.845 / 0.855 / 0.863; the first 10 000 faces of CelebA at 32 x 32 by
gender 0.785 / 0.859 / 0.877, by hair colour 0.715 / 0.754 / 0.762. A run takes 20 to 70
minutes, of faces up to 90. The settings before 2026-11-26 taught classifiers slightly more,
but for faces by gender, and drew far worse images (docs/results.md). CIFAR-10 was run with
those alone: 0.486 at epsilon 1, 0.507 at epsilon 10.
"""

from ml_collections import ConfigDict

from configs import sources


def get_config(argument: str = 'digits') -> ConfigDict:
    """Returns the recommended config.

    Args:
        argument: a source, and after a comma epsilon (10 if it is left out). The source is
            one of `sources.DATA`, such as digits or celeba64:hair, or as `data.source`:
            folder:/path, npz:/path. Behind mnist or fashion_mnist and epsilon may stand
            dpimagebench.
    """
    return sources.given(argument, 'recommended')
