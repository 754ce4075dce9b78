"""Whose labels make the better training set: the generator's, or the labeller's?

    python -m experiments.whose_labels --release=runs/mnist/release \
        --source=npz:/path/to/mnist.npz --out=labels.json

Draws images from a release with a labeller and trains the CNN of utility.py on them with
the labels that the generator meant, with those that the labeller gives, and on those images
alone about which the two agree. Accuracies are on the real test split, which nothing here is
covered by epsilon for.
"""

import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from dpaf_jax.runtime.command import fail, parse, prepare_jax, start

_RELEASE = flags.DEFINE_string(
    'release', None, 'Folder of a release with a labeller.', allow_override=True
)
_SOURCE = flags.DEFINE_string(
    'source', None, 'As config.data.source: where the real test images are.'
)
_NUM = flags.DEFINE_integer(
    'num', 20000, 'Synthetic images; at least 100.', lower_bound=1, allow_override=True
)
_SEEDS = flags.DEFINE_integer('seeds', 1, 'Of the CNN.', lower_bound=1)
_OUT = flags.DEFINE_string('out', None, 'A JSON file.', allow_override=True)


def draw(release: Any, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images [n, H, W, C] uint8, labels meant [n], labels given [n]."""
    import jax

    from dpaf_jax.networks.images import to_float, to_uint8
    from dpaf_jax.release.bundle import BATCH, balanced_labels
    from dpaf_jax.release.samplers.protocol import LabellingSampler
    from dpaf_jax.release.samplers.registry import make_sampler

    sampler = make_sampler(release.config)
    assert isinstance(sampler, LabellingSampler)

    @jax.jit
    def batch(params: Any, key: jax.Array, meant: jax.Array) -> Any:
        images = to_uint8(sampler.sample(params, key, meant))
        return images, sampler.label(params, to_float(images))

    meant = balanced_labels(BATCH, release.config.data.prior)
    keys = jax.random.split(jax.random.key(0), -(-number // BATCH))
    made = [jax.device_get(batch(release.params, key, meant)) for key in keys]
    images, given = (np.concatenate(part) for part in zip(*made, strict=True))
    return images, np.tile(meant, len(keys)), given


def main(argv: Sequence[str]) -> None:
    """The command."""
    if not (_RELEASE.value and _SOURCE.value and _OUT.value):
        fail('give --release, --source and --out; see --help')
    prepare_jax()
    # Imported late, so that --help answers at once.
    from dpaf_jax.data import load, prepare
    from dpaf_jax.evaluation.outcome import Labelled
    from dpaf_jax.evaluation.utility import evaluate
    from dpaf_jax.release.bundle import load_release

    release = load_release(pathlib.Path(_RELEASE.value))
    config = release.config
    data_config = dataclasses.replace(config.data, source=_SOURCE.value)
    with tempfile.TemporaryDirectory() as scratch:
        prepare(data_config, pathlib.Path(scratch) / 'data')
        data = load(data_config, pathlib.Path(scratch) / 'data')
        test = Labelled(np.array(data.test_images), np.array(data.test_labels))
    images, meant, given = draw(release, _NUM.value)
    agree = meant == given
    result: dict[str, Any] = {
        'labeller_on_real': float(np.mean(release.label(test.images) == test.labels)),
        'agreement': float(agree.mean()),
    }
    settings = dataclasses.replace(config.evaluation, seeds=_SEEDS.value)
    for name, x, y in (
        ('meant', images, meant),
        ('given', images, given),
        ('agreeing', images[agree], given[agree]),
    ):
        made = evaluate(Labelled(x, y), test, config.data.num_classes, settings)
        result[name] = {model: values['mean'] for model, values in made.items()}
        print(name, len(x), result[name], flush=True)
    pathlib.Path(_OUT.value).write_text(json.dumps(result, indent=2) + '\n')
    print(json.dumps(result))


if __name__ == '__main__':
    start(main, parse)
