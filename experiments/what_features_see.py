"""What do features without public data tell of a picture, and of its class?

    python -m experiments.what_features_see --source=folder:/path/to/pictures --image_size=32

Ridge regression on what DPAGG reads, tap by tap and all taps of a recommended row together, on
four fifths of the pictures. Printed of the last fifth: the share that it explains of the
variance of EfficientNet-Lite0's features, in which fidelity is measured, and how often the
largest answer is the class. Says in a minute whether a network (`experiments.dead_leaves`), or
another way to read it, is worth a training, and whether classes can come through the table at
all. The figures are of real pictures, without noise: for public data alone.
"""

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from absl import flags

from configs import recommended
from dpaf_jax.config import Config, DataConfig, from_config_dict
from dpaf_jax.evaluation import images as given
from dpaf_jax.methods.dpaf.taps.features import (
    LABELLER,
    UNIT_TAPS,
    fixed_features,
    init_taps,
)
from dpaf_jax.networks.images import to_float
from dpaf_jax.networks.perceptual import efficientnet
from dpaf_jax.networks.perceptual.features import NETWORKS, network_features
from dpaf_jax.runtime.command import fail, parse, prepare_jax, start
from dpaf_jax.runtime.errors import UserError

_SOURCE = flags.DEFINE_string(
    'source', None, 'As config.data.source.', allow_override=True
)
_SIZE = flags.DEFINE_integer('image_size', 32, 'Pixels.', allow_override=True)
_NUM = flags.DEFINE_integer(
    'num', 2500, 'Pictures; at least 20.', lower_bound=1, allow_override=True
)
_ATTRIBUTE = flags.DEFINE_string(
    'attribute', '', 'As config.data.attribute.', allow_override=True
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


def candidates(weights: Sequence[str], shape: tuple[int, ...]) -> dict[str, Features]:
    """By name: of images [B, H, W, C] float32 in [-1, 1] features [B, F].

    Args:
        weights: files of networks by experiments.dead_leaves.
        shape: (H, W, C).
    """
    config = recommended_for(shape)
    reads = config.dpaf.classifier.features
    fixed = init_taps(config, jax.random.key(0), {}) | {
        name: network.params() for name, network in NETWORKS.items()
    }
    found: dict[str, Features] = {
        tap: functools.partial(_tap, tap, fixed, reads)
        for tap in (*config.dpaf.tap_names, *NETWORKS)
        if tap in UNIT_TAPS and tap not in ('count', LABELLER)
    }
    for path in weights:
        tensors = safetensors.numpy.load_file(path)
        params = {name: value.astype(np.float32) for name, value in tensors.items()}
        found[pathlib.Path(path).stem] = functools.partial(
            network_features, 'leaves', params
        )
    return found


def recommended_for(shape: tuple[int, ...]) -> Config:
    """The recommended config for pictures (H, W, C), all of one class."""
    config = recommended.get_config('folder:pictures')
    config.data.image_size, _, config.data.channels = shape
    config.data.num_classes, config.data.class_names = 1, ''
    config.privacy.delta = 1e-5
    config.dpaf.axes = 'none'
    return from_config_dict(config)


def _tap(
    name: str, fixed: dict[str, Any], labeller_reads: str, images: jax.Array
) -> jax.Array:
    made = fixed_features(fixed, images, labeller_reads, kinds_read='leaves')[name]
    return made.reshape(len(images), -1)


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """[n, F] of several: each counts the same, whatever its units."""
    centred = [part - part.mean(axis=0) for part in parts]
    return np.concatenate([c / np.linalg.norm(c) for c in centred], axis=1)


def answers(
    features: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Which pictures are held out, [m], and what ridge regression says of them.

    Args:
        features: [n, F].
        wanted: [n, E].

    Returns:
        For each of `PENALTIES` [m, E].
    """
    order = np.random.default_rng(1).permutation(len(wanted))
    known, held_out = np.split(order, [len(wanted) * 4 // 5])
    features = features - features[known].mean(axis=0)
    features /= np.sqrt(np.mean(np.sum(np.square(features[known]), axis=1)))
    mean = wanted[known].mean(axis=0)
    alike = features @ features[known].T
    lengths, axes = np.linalg.eigh(alike[known])
    found = []
    for penalty in PENALTIES:
        weights = axes @ (
            (axes.T @ (wanted[known] - mean)) / (lengths + penalty)[:, None]
        )
        found.append(alike[held_out] @ weights + mean)
    return held_out, found


def explained(features: np.ndarray, seen: np.ndarray) -> float:
    """Share of the variance of what is seen, by the best penalty; at most 1.

    Args:
        features: [n, F].
        seen: [n, E].
    """
    held_out, found = answers(features, seen)
    truth = seen[held_out]
    total = np.sum(np.square(truth - np.delete(seen, held_out, axis=0).mean(axis=0)))
    return max(1 - float(np.sum(np.square(told - truth)) / total) for told in found)


def told_apart(features: np.ndarray, labels: np.ndarray) -> float:
    """Share of pictures whose class has the largest answer, by the best penalty.

    Args:
        features: [n, F].
        labels: [n] from 0.
    """
    held_out, found = answers(features, np.eye(labels.max() + 1)[labels])
    truth = labels[held_out]
    return max(float(np.mean(told.argmax(axis=1) == truth)) for told in found)


def batched(features: Features, images: np.ndarray) -> np.ndarray:
    """Features of uint8 images [n, H, W, C]."""
    see = jax.jit(lambda batch: features(to_float(batch)))
    parts = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
    return np.concatenate([np.asarray(see(jnp.asarray(part))) for part in parts])


def main(argv: Sequence[str]) -> None:
    """The command."""
    if not _SOURCE.value:
        fail('give --source; see python -m experiments.what_features_see --help')
    prepare_jax()
    try:
        _print_table(_SOURCE.value)
    except (UserError, OSError) as error:
        fail(str(error))


def _print_table(source: str) -> None:
    _, channels = given.shape(source, DataConfig(attribute=_ATTRIBUTE.value))
    data = DataConfig(
        image_size=_SIZE.value,
        channels=channels,
        num_classes=0,
        test_fraction=0.0,
        attribute=_ATTRIBUTE.value,
    )
    shape = _SIZE.value, _SIZE.value, channels
    known = candidates(_WEIGHTS.value, shape)  # first: a mistyped file stops at once
    _, test = given.real(source, data)
    places = np.random.default_rng(0).permutation(len(test.images))[: _NUM.value]
    images, labels = test.images[places], test.labels[places]
    seen = efficientnet.features(images).pooled
    print('| features | number | explained | classes |\n|---|---|---|---|')
    of_row = []
    for name, features in known.items():
        made = batched(features, images)
        _print_line(name, made, seen, labels)
        if name in recommended_for(shape).dpaf.tap_names:
            of_row.append(made)
    _print_line('these of the row together', joined(of_row), seen, labels)
    largest = np.bincount(labels).max() / len(labels)
    print(f'| always the largest class | | | {largest:.3f} |')


def _print_line(
    name: str, made: np.ndarray, seen: np.ndarray, labels: np.ndarray
) -> None:
    share, right = explained(made, seen), told_apart(made, labels)
    print(f'| {name} | {made.shape[1]} | {share:.3f} | {right:.3f} |', flush=True)


if __name__ == '__main__':
    start(main, parse)
