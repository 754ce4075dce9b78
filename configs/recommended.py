"""What to start with on data of your own, at any epsilon.

python -m dpaf_jax.main --config=configs/recommended.py:digits --workdir=runs/digits
python -m dpaf_jax.main --config=configs/recommended.py:mnist,1 --workdir=runs/mnist \
        --config.data.source=npz:/path/to/mnist.npz
python -m dpaf_jax.main --config=configs/recommended.py:folder:/path/to/images,3 \
        --workdir=runs/mine
python -m dpaf_jax.main --config=configs/recommended.py:mnist,1,dpimagebench \
        --workdir=runs/bench --config.data.source=npz:/path/to/mnist.npz

DPAF's one-shot table and a labeller (docs/explanation/algorithm.md). How long they learn
goes by epsilon and the number of records. The word dpimagebench behind epsilon is that
benchmark's protocol (docs/howto/evaluate.md): N = 55 000, delta = 1 / (N ln N), and its
classifiers, for a GPU.

Accuracy of a small CNN, two shared CPU cores, 2026-11-23 and 24; in brackets how
many generators. Certified epsilon 1: MNIST 0.968 ± 0.002 (5), Fashion-MNIST 0.849 ± 0.003
(5). Epsilon 10: 0.981 ± 0.001 (4) and 0.866 ± 0.003 (6); the first 10 000 faces of CelebA at
32 x 32, by gender 0.865 ± 0.011 (4), by hair colour 0.787 ± 0.005 (3). CIFAR-10: 0.486 at
epsilon 1, 0.507 at epsilon 10 (1). Fewer images of MNIST at epsilon 1: 5000 0.915, now
0.910 (1), 1500 0.726 (1). A run took 9 to 17 minutes of one core, evaluation included, CelebA
19 to 30, CIFAR-10 22. All are of the settings before 2026-11-26. Those of now give far truer
images and take 15 to 30 minutes (docs/results.md).
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
