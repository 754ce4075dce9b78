"""Training images are read off DPGEN's 'sanitised' set, at every epsilon that it claims.

    python -m experiments.leaks.dpgen --out=leak

Runs the paper's sanitiser (randomised_response.py) on the embedded digits, which are public,
and then, with what it releases alone, computes x^r = x~ - sigma^2 d. Prints how many pairs
give a training image pixel for pixel, and how many images are given away, by claimed
epsilon; then plays the smallest game: is one image in the data or not? Writes
dpgen_leak.json, and dpgen_leak.png: private images, what is released of them, what is
recovered.
"""

import dataclasses
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from dpaf_jax.runtime.command import fail, parse, prepare_jax, start
from experiments.leaks.outcome import CONFIDENCE

EPSILONS = (0.2, 1.0, 5.0, 10.0, 20.0)  # of the paper's tables
SHOWN = 10

_OUT = flags.DEFINE_string(
    'out', None, 'Folder for dpgen_leak.json and dpgen_leak.png.', allow_override=True
)
_TRIALS = flags.DEFINE_integer(
    'trials',
    1000,
    'Sanitised sets on either side of the game.',
    lower_bound=10,
    allow_override=True,
)


@dataclasses.dataclass(frozen=True)
class Leak:
    """What one sanitised set gives away.

    Attributes:
        epsilon: claimed, for each image.
        pairs: N.
        exact: share of the pairs that give a training image pixel for pixel.
        own: share that give the image that they were made from.
        images: share of the training images that some pair gives away.
    """

    epsilon: float
    pairs: int
    exact: float
    own: float
    images: float


def recover(made: Any) -> np.ndarray:
    """[N, H, W, C] uint8 from the released pairs alone."""
    grey = np.round((made.recovered() + 1) * 127.5)
    return np.clip(grey, 0, 255).astype(np.uint8)


def measure(images: np.ndarray, made: Any, epsilon: float) -> Leak:
    """Compares what was recovered with the private images [N, H, W, C] uint8."""
    there = {image.tobytes() for image in images}
    found = recover(made)
    hits = {image.tobytes() for image in found} & there
    own = np.all(found == images, axis=(1, 2, 3))
    return Leak(
        epsilon=epsilon,
        pairs=len(images),
        exact=float(np.mean([image.tobytes() in there for image in found])),
        own=float(np.mean(own)),
        images=len(hits) / len(there),
    )


def sanitised(images: np.ndarray, epsilon: float, seed: int) -> Any:
    """The paper's set D with the default config's levels, k and beta."""
    from configs import dpgen
    from dpaf_jax.config import from_config_dict
    from dpaf_jax.methods.dpgen.randomised_response import sanitise
    from dpaf_jax.networks.score import noise_levels

    config = from_config_dict(dpgen.get_config())
    k, beta = config.dpgen.candidates, config.dpgen.threshold
    rng = np.random.default_rng(seed)
    clean = images.astype(np.float32) / 127.5 - 1
    return sanitise(clean, noise_levels(config), epsilon, k, beta, rng)


def play(images: np.ndarray, epsilon: float, trials: int) -> float:
    """A lower bound on epsilon from one question: does a pair give the first image?

    Args:
        images: [n, H, W, C] uint8; the first is the canary, absent in half of the sets.
        epsilon: claimed.
        trials: on either side.
    """
    from dpaf_jax.audit.bounds import epsilon_lower_bound

    scores = [
        np.array([
            float(np.any(np.all(recover(made) == images[0], axis=(1, 2, 3))))
            for seed in range(trials)
            for made in [sanitised(images[first:], epsilon, seed)]
        ])
        for first in (0, 1)
    ]  # fmt: skip
    alpha = (1 - CONFIDENCE) / len(EPSILONS)
    return epsilon_lower_bound(scores[0], scores[1], alpha, 0.0)


def picture(images: np.ndarray, made: Any) -> Any:
    """Three rows: private images, noisy ones as released, recovered ones."""
    from dpaf_jax.release.pictures import sample_grid

    noisy = np.clip(np.round((made.noisy + 1) * 127.5), 0, 255).astype(np.uint8)
    order = np.argsort(-made.sigma, kind='stable')
    chosen = order[:: len(order) // SHOWN][:SHOWN]  # from the most noise to the least
    rows = np.concatenate([x[chosen] for x in (images, noisy, recover(made))])
    return sample_grid(rows, np.repeat(np.arange(3), SHOWN), 3, SHOWN)


def digits() -> np.ndarray:
    """The training images of the digits config."""
    from configs import dpgen
    from dpaf_jax.config import from_config_dict
    from dpaf_jax.data import load, prepare

    config = from_config_dict(dpgen.get_config())
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / 'data'
        prepare(config.data, folder)
        data = load(config.data, folder)
        return np.array(data.images)


def main(_: Sequence[str]) -> None:
    """The command."""
    if _OUT.value is None:
        fail('give --out=<folder>; see python -m experiments.leaks.dpgen --help')
    prepare_jax()
    # Imported late, so that --help answers at once.
    from dpaf_jax.release.pictures import save_png
    from dpaf_jax.runtime.files import write_json

    out = pathlib.Path(_OUT.value)
    images = digits()
    rows = []
    print(f'{"claimed":>8} {"exact":>8} {"own":>8} {"images":>8} {"lower bound":>12}')
    for epsilon in EPSILONS:
        made = sanitised(images, epsilon, seed=0)
        leak = measure(images, made, epsilon)
        bound = play(images[:50], epsilon, _TRIALS.value)
        print(
            f'{epsilon:>8g} {leak.exact:>8.1%} {leak.own:>8.1%} {leak.images:>8.1%} '
            f'{bound:>12.2f}' + ('   EXCEEDED' if bound > epsilon else '')
        )
        rows.append(dataclasses.asdict(leak) | {'lower_bound': bound})
        if epsilon == 1:
            save_png(picture(images, made), out / 'dpgen_leak.png')
    found = {'confidence': CONFIDENCE, 'delta': 0.0, 'leaks': rows}
    write_json(out / 'dpgen_leak.json', found)


if __name__ == '__main__':
    start(main, parse)
