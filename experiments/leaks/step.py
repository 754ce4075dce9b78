"""One step as published and one as certified, attacked side by side: what such games share."""

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from configs import default
from dpaf_jax.audit import canaries
from dpaf_jax.config import Config, from_config_dict
from dpaf_jax.privacy.chacha import KEY_WORDS
from dpaf_jax.runtime.command import fail, prepare_jax
from dpaf_jax.training.batch import ClipBatch
from experiments.leaks.outcome import attack_all, content, exit_status

EPSILON = 1.0
NUMBER = 16  # records, all in every batch
CHUNK = 50  # trials side by side

_OUT = flags.DEFINE_string(
    'out', None, 'Folder for what is found, as JSON.', allow_override=True
)
_TRIALS = flags.DEFINE_integer(
    'trials',
    1000,
    'Steps on either side of each game.',
    lower_bound=10,
    allow_override=True,
)


def setting(
    method: str, guarantee: str, fields: dict[str, Any], epsilon: float
) -> tuple[Config, ClipBatch]:
    """A method with the smallest networks, and [NUMBER, 1] made-up records.

    Args:
        method: of the config.
        guarantee: one of `outcome.GUARANTEES`.
        fields: of the config besides, by their path.
        epsilon: of the whole training.
    """
    made = default.get_config()
    made.update_from_flattened_dict(
        {
            'method': method,
            'data.image_size': 8,
            'data.num_classes': 2,
            'data.num_examples': NUMBER,
            'networks.layers': 'C1-C1-x',
            'networks.generator_width': 2,
            'networks.z_dim': 4,
            'privacy.guarantee': guarantee,
            'privacy.epsilon': epsilon,
            **fields,
        }
    )
    config = from_config_dict(made)
    images = canaries.noise_images(config.data, NUMBER, seed=0)
    return config, canaries.batch(images, config.data, (NUMBER, 1))


def world(batch: ClipBatch, is_in: bool) -> ClipBatch:
    """A batch with its first record, the one in question, or with an empty one."""
    absent = np.zeros_like(batch.is_padding_example)
    absent[0] = not is_in
    return batch._replace(is_padding_example=absent)


def steps(
    step: Callable[..., Any], batch: ClipBatch, trials: int, is_in: bool, seed: int
) -> np.ndarray:
    """[trials, P] what steps on one of the two worlds show, each with noise of its own.

    Args:
        step: from a batch and keys [1, CHUNK, KEY_WORDS] to [1, CHUNK, P].
        batch: with the record.
        trials, is_in, seed: as of a game's `play`.
    """
    rng, there = np.random.default_rng([seed, int(is_in)]), world(batch, is_in)
    made = []
    for _ in range(0, trials, CHUNK):
        keys = rng.integers(2**32, size=(1, CHUNK, KEY_WORDS), dtype=np.uint32)
        made.append(np.asarray(step(there, keys)[0], np.float64))
    return np.concatenate(made)[:trials]


def play(name: str, game: Callable[[str, float], Any]) -> None:
    """The command: attacks both forms at `EPSILON`, prints a table, writes <name>_leak.json.

    Args:
        name: of the experiment's module.
        game: from a guarantee and epsilon to what `attack` plays.
    """
    if _OUT.value is None:
        fail(f'give --out=<folder>; see python -m experiments.leaks.{name} --help')
    prepare_jax()
    from dpaf_jax.runtime.files import write_json

    outcomes = attack_all({name: lambda form: game(form, EPSILON)}, _TRIALS.value)
    write_json(pathlib.Path(_OUT.value) / f'{name}_leak.json', content(outcomes))
    sys.exit(exit_status(outcomes))
