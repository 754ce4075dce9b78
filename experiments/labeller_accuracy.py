"""How good is the labeller, by the number of records and by epsilon?

    python -m experiments.labeller_accuracy --source=npz:/path/to/mnist.npz --out=labeller.json

Trains the labeller of configs/recommended.py on the first records of a data set of 28 x 28 in
ten classes, for several numbers of them and several epsilons, and measures its accuracy on the
real test split. It alone: no table, no generator; its share is 75 % of the epsilon stated.
"""

import dataclasses
import json
import pathlib
import secrets
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from dpaf_jax.runtime.command import fail, parse, prepare_jax, start

_SOURCE = flags.DEFINE_string(
    'source', None, 'As config.data.source.', allow_override=True
)
_NUMBERS = flags.DEFINE_list(
    'numbers', ['1500', '5000', '20000', '60000'], 'Of records.'
)
_EPSILONS = flags.DEFINE_list(
    'epsilons', ['1', '10'], 'Of the whole run.', allow_override=True
)
_OUT = flags.DEFINE_string('out', None, 'A JSON file.', allow_override=True)


def typed_config(source: str, number: int, epsilon: float) -> Any:
    """The recommended config for so many records."""
    from configs import recommended
    from dpaf_jax.config import from_config_dict

    config = recommended.get_config('mnist')
    config.data.source, config.data.num_examples = source, number
    config.privacy.epsilon = epsilon
    return from_config_dict(config)


def accuracy(data: Any, config: Any, folder: pathlib.Path) -> float:
    """Trains a labeller on the first records and tests it on real images."""
    import jax

    from dpaf_jax import methods
    from dpaf_jax.methods.dpaf.phase1.classifier_phase import LabellerPhase
    from dpaf_jax.methods.dpaf.phase1.labeller import Labeller
    from dpaf_jax.privacy.keys import RunKeys
    from dpaf_jax.release.drawing import Release
    from dpaf_jax.release.samplers.dpaf import LABELLER
    from dpaf_jax.training.run import Run

    number = config.data.num_examples
    plan = methods.plan(config, number)
    few = dataclasses.replace(
        data,
        images=data.images[:number],
        labels=data.labels[:number],
        index=data.index[:number],
    )
    keys = RunKeys(secrets.token_bytes(32), secrets.token_hex(32))
    run = Run(folder, config, plan, few, keys, jax.local_devices()[:1])
    labeller = Labeller(config, plan)
    state = run.train(LabellerPhase(run, labeller))
    release = Release(config, {}, {LABELLER: labeller.learnt(state.params)})
    given = release.label(data.test_images)
    return float(np.mean(given == data.test_labels))


def main(argv: Sequence[str]) -> None:
    """The command."""
    if not (_SOURCE.value and _OUT.value):
        fail('give --source and --out; see --help')
    prepare_jax()
    from dpaf_jax.runtime.errors import UserError

    try:
        rows = _rows(_SOURCE.value)
    except (UserError, OSError) as error:
        fail(str(error))
    pathlib.Path(_OUT.value).write_text(json.dumps(rows, indent=2) + '\n')


def _rows(source: str) -> list[dict[str, Any]]:
    # Imported late, so that --help answers at once.
    from dpaf_jax.data import load, prepare

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        whole = dataclasses.replace(
            typed_config(source, 60000, 1.0).data, num_examples=0
        )
        prepare(whole, folder / 'data')
        data = load(whole, folder / 'data')
        for number in map(int, _NUMBERS.value):
            for epsilon in map(float, _EPSILONS.value):
                config = typed_config(source, number, epsilon)
                made = accuracy(data, config, folder / f'{number}-{epsilon}')
                rows.append({'records': number, 'epsilon': epsilon, 'accuracy': made})
                print(rows[-1], flush=True)
    return rows


if __name__ == '__main__':
    start(main, parse)
