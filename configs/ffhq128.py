"""FFHQ-Gender: faces at 128 x 128 in two classes, labels from the FFHQ features JSON.

python -m dpaf_jax.main --config=configs/ffhq128.py --workdir=runs/ffhq \
        --config.data.source=ffhq:/path/to/images \
        --config.data.annotations=/path/to/ffhq-features/json

FFHQ itself is not measured yet. In its place, at certified epsilon = 10, one generator each:
8862 faces of UTKFace, 400 generator steps of 66 fakes along axes (dpaf.axes=all,
dpaf.generator.whitenings=0), an hour of one shared CPU core in all, 2026-11-29: CNN 0.729
(commonest class 0.544), Frechet distance 321, most pass for faces, some have stains or are
negatives. 200 steps as they were, 2026-11-26: CNN 0.674, 590. The first 10 000 faces of
CelebA, 400 steps, before the tap shape: CNN 0.768 to 0.819
(docs/research/2026-11-24-larger-faces.md). All 2000 steps are for a GPU.

`:canonical` on the same faces of UTKFace, whole: 500 steps, seven hours of a shared core in
all, 12.4 GB, 2026-11-30: CNN 0.686, Frechet distance 418, precision .15, recall 0. A few
templates of a face come back, soft, burnt out or without colour.
"""

from ml_collections import ConfigDict

from configs import default, variants


def get_config(variant: str = 'recommended') -> ConfigDict:
    """Returns the config; `:one_shot`, `:canonical`, `:printed`: see variants."""
    config = default.get_config()
    config.data.source = 'ffhq:ffhq'
    config.data.attribute = 'gender'
    config.data.num_classes = 2  # female, male
    config.data.image_size = 128
    config.data.channels = 3
    config.data.test_fraction = 0.1  # as in the paper
    config.privacy.delta = 1e-6  # N is about 63 000
    variants.large(config, variant, 'C3-C1-x')
    if variant == 'one_shot':
        config.networks.generator_width = 16
    elif variant == 'printed':
        # In five epochs Theorem 5 could not state DPAGG's 0.1, at any noise.
        config.dpaf.epochs = 1.0
    return config
