"""What the figures of fidelity say of images whose faults are known.

    DPAF_DATA=/folder/with/mnist.npz python -m experiments.fidelity_calibration

Real training images of MNIST, as they are and spoilt in one way each, stand in for synthetic
ones and are compared with test images. Also the floor: real against real, by their number.
Prints a Markdown table. About six minutes on one core.
"""

import os
import pathlib
import sys
from collections.abc import Callable

import numpy as np
from scipy import ndimage

from dpaf_jax.evaluation import fidelity
from dpaf_jax.networks.perceptual import efficientnet

NUM = 5000
FLOORS = (500, 1000, 2000, 5000, 10_000)
SPOILT: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    'noise of 2.6 grey levels': lambda x, y: as_pixels(
        x + 2.6 * np.random.default_rng(1).standard_normal(x.shape)
    ),
    'Gaussian blur of one pixel': lambda x, y: as_pixels(
        ndimage.gaussian_filter(x.astype(float), (0, 1, 1, 0))
    ),
    'a hundred images repeated': lambda x, y: np.resize(x[:100], x.shape),
    'the mean of their class': lambda x, y: as_pixels(
        np.stack([x[y == k].mean(axis=0) for k in range(10)])[y]
    ),
}


def as_pixels(values: np.ndarray) -> np.ndarray:
    """Rounded and clipped to 0 .. 255."""
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def first(side: efficientnet.Features, num: int) -> efficientnet.Features:
    """Of the first images alone."""
    return efficientnet.Features(*(part[:num] for part in side))


def row(name: str, found: dict[str, float]) -> str:
    """A line of the table."""
    keys = (f'fd_{efficientnet.NAME}', 'precision', 'recall', 'density', 'coverage')
    cells = [f'{found["num_synthetic"]}', f'{found[keys[0]]:.1f}']
    cells += [f'{found[key]:.2f}' for key in keys[1:]]
    return f'| {name} | {" | ".join(cells)} |'


def main(folder: str) -> None:
    """Prints the table."""
    with np.load(pathlib.Path(folder) / 'mnist.npz') as data:
        # Drawn: the first half of MNIST's test images is the easier one.
        rng = np.random.default_rng(0)
        test = rng.permutation(data['test_x'])[..., None]
        chosen = rng.permutation(60_000)[: FLOORS[-1]]
        train, labels = data['train_x'][chosen][..., None], data['train_y'][chosen]
    real, other = efficientnet.features(test), efficientnet.features(train)
    print('| images | number | Fréchet | precision | recall | density | coverage |')
    print('|---|---|---|---|---|---|---|')
    for num in FLOORS:
        found = fidelity.compare(first(real, num), first(other, num))
        print(row('real training images', found), flush=True)
    real = first(real, NUM)
    for name, spoil in SPOILT.items():
        images = spoil(train[:NUM], labels[:NUM])
        found = fidelity.compare(real, efficientnet.features(images))
        print(row(name, found), flush=True)


if __name__ == '__main__':
    if 'DPAF_DATA' not in os.environ:
        sys.exit('error: DPAF_DATA must name a folder with mnist.npz')
    main(os.environ['DPAF_DATA'])
