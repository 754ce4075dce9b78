"""How much of what a public network sees do features without public data tell?

    python -m experiments.what_features_see --source=folder:/path/to/pictures --image_size=32

Ridge regression of EfficientNet-Lite0's features, in which fidelity is measured, on those that
DPAGG reads: the share of their variance that it explains on a fifth of the pictures, held out.
Says in a minute whether a network (`experiments.dead_leaves`), or another way to read it, is
worth a training. The figures are of real pictures, without noise: for public data alone.
"""

import functools
import pathlib
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from absl import app, flags

from dpaf_jax.config import DataConfig
from dpaf_jax.evaluation import images as given
from dpaf_jax.evaluation.fidelity import drawn
from dpaf_jax.networks.fixed.wavelets import wavelet_features
from dpaf_jax.networks.images import to_float
from dpaf_jax.networks.perceptual import efficientnet
from dpaf_jax.networks.perceptual.features import NETWORKS, network_features
from dpaf_jax.runtime.command import fail, parse, prepare_jax
from dpaf_jax.runtime.errors import UserError

_SOURCE = flags.DEFINE_string(
    'source', None, 'As config.data.source.', allow_override=True
)
_SIZE = flags.DEFINE_integer('image_size', 32, 'Pixels.', allow_override=True)
_NUM = flags.DEFINE_integer(
    'num', 2500, 'Pictures; at least 20.', lower_bound=1, allow_override=True
)
_WEIGHTS = flags.DEFINE_list(
    'weights',
    [],
    'Files by experiments.dead_leaves, beside the one that is shipped.',
    allow_override=True,
)

BATCH = 250
PENALTIES = (1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)

Features = Callable[[jax.Array], jax.Array]


def candidates(weights: Sequence[str]) -> dict[str, Features]:
    """By name: of images [B, H, W, C] float32 in [-1, 1] features [B, F]."""
    found: dict[str, Features] = {'wavelet': wavelet_features}
    for name, network in NETWORKS.items():
        found[name] = functools.partial(network_features, name, network.params())
    for path in weights:
        tensors = safetensors.numpy.load_file(path)
        params = {name: value.astype(np.float32) for name, value in tensors.items()}
        found[pathlib.Path(path).stem] = functools.partial(
            network_features, 'leaves', params
        )
    return found


def explained(features: np.ndarray, seen: np.ndarray) -> float:
    """Share of the variance of what is seen, by the best of `PENALTIES`; at most 1.

    Args:
        features: [n, F].
        seen: [n, E].
    """
    order = np.random.default_rng(1).permutation(len(seen))
    known, held_out = np.split(order, [len(seen) * 4 // 5])
    features = features - features[known].mean(axis=0)
    features /= np.sqrt(np.mean(np.sum(np.square(features[known]), axis=1)))
    seen = seen - seen[known].mean(axis=0)
    alike = features @ features[known].T
    lengths, axes = np.linalg.eigh(alike[known])
    total, shares = np.sum(np.square(seen[held_out])), []
    for penalty in PENALTIES:
        weights = axes @ ((axes.T @ seen[known]) / (lengths + penalty)[:, None])
        error = alike[held_out] @ weights - seen[held_out]
        shares.append(1 - float(np.sum(np.square(error)) / total))
    return max(shares)


def batched(features: Features, images: np.ndarray) -> np.ndarray:
    """Features of uint8 images [n, H, W, C]."""
    see = jax.jit(lambda batch: features(to_float(batch)))
    parts = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
    return np.concatenate([np.asarray(see(jnp.asarray(part))) for part in parts])


def main(argv: Sequence[str]) -> None:
    """The command."""
    if len(argv) > 1 or not _SOURCE.value:
        fail('give --source; see python -m experiments.what_features_see --help')
    prepare_jax()
    try:
        _print_table(_SOURCE.value)
    except (UserError, OSError) as error:
        fail(str(error))


def _print_table(source: str) -> None:
    _, channels = given.shape(source, DataConfig())
    data = DataConfig(
        image_size=_SIZE.value, channels=channels, num_classes=0, test_fraction=0.0
    )
    known = candidates(_WEIGHTS.value)  # first: a mistyped file stops at once
    _, test = given.real(source, data)
    images = drawn(test.images, _NUM.value)
    seen = efficientnet.features(images).pooled
    print('| features | number | explained |\n|---|---|---|')
    for name, features in known.items():
        made = batched(features, images)
        print(f'| {name} | {made.shape[1]} | {explained(made, seen):.3f} |', flush=True)


if __name__ == '__main__':
    app.run(main, flags_parser=parse)
