"""The sections of a config that every method reads, but the data's: a field stands once."""

import dataclasses
import math

from dpaf_jax.config.fields import at_least, between, one_of, plain, private_path


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyConfig:
    """The guarantee asked for."""

    guarantee: str = one_of(
        'certified',
        ('certified', 'as_published'),
        'Kind of guarantee: epsilon is proven for the code that runs (certified), or '
        'the method runs as printed, certified only where its proof holds '
        '(as_published).',
    )
    epsilon: float = plain(
        10.0,
        'Total epsilon of the run; inf disables noise and clipping, and guarantees '
        'nothing.',
        infinite=True,
    )
    delta: float = plain(
        1e-5, 'Total delta of the run, below 1 / N; 0: a tenth of 1 / N, rounded down.'
    )
    budgets: str = plain(
        '0.1,rest,0.1',
        "Epsilon of each mechanism, joined by commas, as '0.1', '20%' or 'rest': of "
        "DPAF's and FETA's phase 1, conv2* and DPAGG; of P3GM's PCA, decoder and EM. "
        'Other methods do not read it.',
    )
    overflow_fraction: float = between(
        0.01,
        0.0,
        0.5,
        'Share of delta that pays for the chance of a draw with more records than its '
        'capacity.',
    )

    @property
    def is_private(self) -> bool:
        """Whether anything is clipped and noised; with an infinite epsilon nothing is."""
        return math.isfinite(self.epsilon)

    def bound(self, value: float) -> float:
        """`value`, a clip bound; infinite where nothing is clipped."""
        return value if self.is_private else math.inf

    @property
    def as_published(self) -> bool:
        """Whether the method runs as its paper prints it."""
        return self.guarantee == 'as_published'


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworksConfig:
    """Shapes of the classifier, the discriminator and the generator."""

    layers: str = plain(
        'C2-C1-x',
        'Layers of conv1, conv2* and conv3* as numbers of convolutions (x: none), '
        'each of which halves the side; empty: by image_size. Other methods use their '
        'sum.',
    )
    kernel_size: int = at_least(
        4,
        2,
        "Side in pixels of the convolution kernels in DPAF's classifier and in "
        'discriminators, but for biggan and pggan.',
    )
    width: int = at_least(
        32,
        1,
        "Feature maps of the first layer of DPAF's classifier and discriminator; they "
        'double from layer to layer, up to max_width.',
    )
    max_width: int = at_least(
        256,
        1,
        "Largest number of feature maps of a layer in DPAF's classifier and "
        'discriminator, and in generators.',
    )
    fc_width: int = at_least(
        128,
        1,
        "Hidden units between the two fully connected layers of DPAF's classifier and "
        'discriminator; for tables, of the generator.',
    )
    generator: str = one_of(
        'reverse', ('reverse', 'styled', 'fine'),
        'Architecture of the generator: the reverse of the discriminator (reverse); '
        'one whose layers all get latent vector and label (styled); the same with a '
        "last layer at the image's own side (fine).",
    )  # fmt: skip
    generator_width: int = at_least(
        32,
        1,
        "Feature maps of the generator at half the image's side; they double inwards, "
        'up to max_width.',
    )
    z_dim: int = at_least(100, 1, "Dimensions of the generator's latent vector.")
    label_injection: str = one_of(
        'first_layer', ('first_layer', 'input', 'none'),
        "Place where DPAF's discriminator gets the label, as one-hot planes: behind "
        'its first layer, at its input, or nowhere.',
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How a run uses its machine; changes nothing of what is computed."""

    devices: int = at_least(0, 0, 'Number of devices, such as GPUs, to use; 0: all.')
    checkpoint_seconds: float = at_least(
        300.0,
        0.0,
        'Time between two checkpoints in seconds; 0: one after every compiled window '
        'of steps.',
    )
    keep_checkpoints: int = at_least(
        2, 1, 'Number of latest checkpoints that are kept of each training phase.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig:
    """The synthetic data set of the samples stage."""

    num: int = at_least(
        60000,
        0,
        'Number of synthetic images or rows, whose labels follow the class '
        'probabilities; 0: N, but at least 20 000 and at most 60 000; of NDPDC as many '
        'as the release holds.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Train on synthetic, test on real."""

    seeds: int = at_least(
        1,
        1,
        'Number of evaluation classifiers of each kind. They differ less than '
        'generators do.',
    )
    epochs: int = at_least(
        0,
        0,
        "Number of training epochs of the evaluation's CNN, logistic regression and "
        'ResNets; 0: 5, or as many more as show 100 000 images; suite '
        'dpimagebench has its own.',
    )
    batch_size: int = at_least(
        128,
        1,
        "Batch size of the evaluation's CNN, logistic regression and ResNets; suite "
        'dpimagebench has its own.',
    )
    wide_resnet: str = one_of(
        '',
        ('', '16-2', '40-4'),
        'Depth and width of a Wide ResNet as one more evaluation classifier, for a '
        'GPU; empty: none.',
    )
    train_on_real: bool = plain(
        False,
        'Whether real training data are evaluated, too, in place of synthetic ones: '
        'the ceiling of utility and the floor of fidelity, under nonprivate/ and in the '
        'report.',
    )
    suite: str = one_of(
        'quick',
        ('quick', 'full', 'slow', 'dpimagebench'),
        'Set of evaluation classifiers: a CNN and logistic regression (quick); also '
        "scikit-learn's and XGBoost (full); also large networks, for a GPU (slow); "
        "DPImageBench's three, trained as there (dpimagebench).",
    )
    fidelity_images: int = at_least(
        10_000,
        0,
        'Largest number of images of each side, real and synthetic, that fidelity '
        'compares; 0: no fidelity.',
    )
    neighbours: int = at_least(
        3, 1, 'Number of nearest neighbours (k) in precision and recall.'
    )
    datalens_epochs: int = at_least(
        0,
        0,
        "Number of training epochs of DataLens' CNN, which suite slow has; 0: theirs, "
        '600 for grey images and 250 for colour.',
    )
    datalens_batch_size: int = at_least(
        0,
        0,
        "Batch size of DataLens' CNN, which suite slow has; 0: theirs, 512 for grey "
        'images and 256 for colour.',
    )
    inception_weights: str = private_path(
        "Path of the weights of FID's InceptionV3, pytorch-fid's file; empty: no FID and "
        'no Inception score.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseConfig:
    """What the release may say."""

    test_set_is_public: bool = plain(
        False,
        'Whether the test set is public; then the model card states accuracies on it.',
    )
