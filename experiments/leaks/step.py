"""One step as published and one as certified, attacked side by side: what such games share."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from dpaf_jax.runtime.command import fail, prepare_jax
from experiments.leaks.published import CONFIDENCE, EXIT_CAUGHT, attack, table

GUARANTEES = ('as_published', 'certified')
EPSILON = 1.0

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


def play(name: str, game: Callable[[str, float], Any], argv: Sequence[str]) -> None:
    """The command: attacks both forms at `EPSILON`, prints a table and writes <name>.json.

    Args:
        name: of the experiment.
        game: from a guarantee and epsilon to what `attack` plays.
        argv: of the command.
    """
    if len(argv) > 1 or _OUT.value is None:
        fail(
            'give --out=<folder>; see python -m experiments.leaks.'
            f'{name.removesuffix("_leak")} --help'
        )
    prepare_jax()
    from dpaf_jax.runtime.files import write_json

    alpha = (1 - CONFIDENCE) / len(GUARANTEES)
    outcomes = [
        attack(game(guarantee, EPSILON), _TRIALS.value, alpha)
        for guarantee in GUARANTEES
    ]
    print(table(outcomes))
    content = {
        'confidence': CONFIDENCE,
        'attacks': [dataclasses.asdict(outcome) for outcome in outcomes],
    }
    write_json(pathlib.Path(_OUT.value) / f'{name}.json', content)
    caught = any(
        o.lower_bound > o.epsilon1 for o in outcomes if o.guarantee == 'certified'
    )
    sys.exit(EXIT_CAUGHT if caught else 0)
