"""What the figures of fidelity say of images whose faults are known.

    python -m experiments.fidelity_calibration --source=npz:/path/to/mnist.npz \
        --other=npz:/path/to/fashion_mnist.npz

Real training images, as they are and spoilt in one way each, stand in for synthetic ones and
are compared with test images. First comes the floor: real against real, by their number.
Prints a Markdown table. About six minutes on one core for 10 000 images of a side. The figures
are of real pictures, without noise: for public data alone.
"""

from collections.abc import Callable, Sequence

import numpy as np
from absl import flags
from scipy import ndimage

from dpaf_jax.config import DataConfig
from dpaf_jax.evaluation import fidelity
from dpaf_jax.evaluation import images as given
from dpaf_jax.evaluation.outcome import Labelled
from dpaf_jax.networks.perceptual import efficientnet
from dpaf_jax.networks.perceptual.efficientnet import Features
from dpaf_jax.runtime.command import fail, parse, prepare_jax, start
from dpaf_jax.runtime.errors import UserError

_SOURCE = flags.DEFINE_string(
    'source', None, 'As config.data.source.', allow_override=True
)
_OTHER = flags.DEFINE_string(
    'other', None, 'A source of images of another kind.', allow_override=True
)
_ATTRIBUTE = flags.DEFINE_string(
    'attribute',
    '',
    'As config.data.attribute, of CelebA and FFHQ.',
    allow_override=True,
)
_SIZE = flags.DEFINE_integer('image_size', 28, 'Pixels.', allow_override=True)
_NUM = flags.DEFINE_integer(
    'num',
    5000,
    'Spoilt images, at least 100; the floor has up to 10 000.',
    lower_bound=100,
    allow_override=True,
)

FLOORS = (500, 1000, 2000, 4000, 5000, 10_000)
REPEATED = 100

Spoil = Callable[[np.ndarray, np.ndarray], np.ndarray]


def with_noise(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Normal noise of 2.6 grey levels."""
    del labels
    noise = np.random.default_rng(1).standard_normal(images.shape)
    return as_pixels(images + 2.6 * noise)


def blurred(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """By a normal of one pixel."""
    del labels
    return as_pixels(ndimage.gaussian_filter(images.astype(float), (0, 1, 1, 0)))


def repeated(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The first hundred, over and over."""
    del labels
    return np.resize(images[:REPEATED], images.shape)


def class_means(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Each is the mean of its class."""
    means = {y: as_pixels(images[labels == y].mean(axis=0)) for y in np.unique(labels)}
    return np.stack([means[y] for y in labels])


SPOILT: dict[str, Spoil] = {
    'noise of 2.6 grey levels': with_noise,
    'Gaussian blur of one pixel': blurred,
    'a hundred images repeated': repeated,
    'the mean of their class': class_means,
}


def as_pixels(values: np.ndarray) -> np.ndarray:
    """Rounded and clipped to 0 .. 255."""
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def first(side: Features, num: int) -> Features:
    """Of the first images alone."""
    return Features(*(part[:num] for part in side))


def row(name: str, found: dict[str, float]) -> str:
    """A line of the table."""
    keys = (f'fd_{efficientnet.NAME}', 'precision', 'recall', 'density', 'coverage')
    cells = [f'{found["num_synthetic"]}', f'{found[keys[0]]:.1f}']
    cells += [f'{found[key]:.2f}' for key in keys[1:]]
    return f'| {name} | {" | ".join(cells)} |'


def main(argv: Sequence[str]) -> None:
    """The command."""
    if not _SOURCE.value:
        fail('give --source; see python -m experiments.fidelity_calibration --help')
    prepare_jax()
    try:
        _print_table(_SOURCE.value, _OTHER.value)
    except (UserError, OSError) as error:
        fail(str(error))


def _print_table(source: str, other: str | None) -> None:
    train, test = loaded(source, _SIZE.value, _ATTRIBUTE.value)
    # Early: a mistyped source stops before anything is computed.
    strangers = loaded(other, _SIZE.value)[1] if other else None
    most = min(len(train.images), len(test.images), FLOORS[-1])
    images, labels = shuffled(train, most)
    real = efficientnet.features(shuffled(test, most).images)
    unspoilt = efficientnet.features(images)
    print('| images | number | Fréchet | precision | recall | density | coverage |')
    print('|---|---|---|---|---|---|---|')
    for num in (*(n for n in FLOORS if n < most), most):
        found = fidelity.compare(first(real, num), first(unspoilt, num))
        print(row('real training images', found), flush=True)
    num = min(_NUM.value, most)
    stand_ins = {
        name: spoil(images[:num], labels[:num]) for name, spoil in SPOILT.items()
    }
    if strangers:
        stand_ins['real images of another kind'] = shuffled(strangers, num).images
    for name, seen in stand_ins.items():
        found = fidelity.compare(first(real, num), efficientnet.features(seen))
        print(row(name, found), flush=True)


def shuffled(side: Labelled, num: int) -> Labelled:
    """The first half of MNIST's test images is the easier one."""
    order = np.random.default_rng(0).permutation(len(side.images))[:num]
    return Labelled(side.images[order], side.labels[order])


def loaded(source: str, size: int, attribute: str = '') -> tuple[Labelled, Labelled]:
    """Training and test images; half are test images where the source does not say."""
    _, channels = given.shape(source, DataConfig(attribute=attribute))
    data = DataConfig(
        attribute=attribute,
        image_size=size,
        channels=channels,
        num_classes=0,
        test_fraction=0.5,
    )
    return given.real(source, data)


if __name__ == '__main__':
    start(main, parse)
