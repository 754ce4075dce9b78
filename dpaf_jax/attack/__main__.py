"""Attacks a finished run's release, with its real images as the yardstick.

    python -m dpaf_jax.attack --attack=membership --workdir=runs/digits

Writes into <workdir>/nonprivate/attacks/, which shows real images: never publish it.
membership: which training images, or rows of a table, were used? memorisation: are any of
them copied?
gradient_inversion: are images recovered from a classifier's gradients under the noise
strategies of DPBA-WGAN? It looks at the run's images, not at its release.

Exit status: 0 if nothing was found, which proves nothing; 1 if something was, within what
epsilon permits or beyond it (the verdict says which); 2 for bad input. Where there is
nothing to find, each attack finds it with a chance of at most 5 %. gradient_inversion has
no verdict: 0.
"""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from dpaf_jax.runtime.command import (
    errors_in_one_line,
    fail,
    parse,
    prepare_jax,
    require,
    require_devices,
    start,
)
from dpaf_jax.runtime.files import require_place

_ATTACK = flags.DEFINE_string(
    'attack', None, 'membership, memorisation or gradient_inversion.'
)
_WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Folder of a finished run.', allow_override=True
)
_DATA = flags.DEFINE_string(
    'data', None, "Folder of the prepared data; default: the workdir's private/data."
)
_ITERATIONS = flags.DEFINE_integer(
    'iterations',
    500,
    'gradient_inversion: training steps, all attacked.',
    lower_bound=1,
)
_ATTEMPTS = flags.DEFINE_integer(
    'attempts', 300, 'gradient_inversion: steps of each attack.', lower_bound=1
)
EXIT_FOUND = 1


def main(argv: Sequence[str]) -> None:
    """The command."""
    given = {'attack': _ATTACK.value, 'workdir': _WORKDIR.value}
    name, workdir = require(argv, given)
    prepare_jax()
    # Imported late, so that --help and a mistyped flag answer at once.
    from dpaf_jax.attack.registry import ATTACKS
    from dpaf_jax.attack.target import WARNING, open_target

    if name not in ATTACKS:
        fail(f'--attack: is {name!r}. Choose {" or ".join(ATTACKS)}')
    attack = ATTACKS[name]
    counts = {}
    if name == 'gradient_inversion':
        counts = {'iterations': _ITERATIONS.value, 'attempts': _ATTEMPTS.value}
    with errors_in_one_line(pathlib.Path(workdir), '--workdir'):
        require_devices()
        target = open_target(workdir, _DATA.value)
        require_place(target.folder, '--workdir')
        made = attack.run(target, **counts)
    print(attack.table(made))
    print(f'in {target.folder}: {WARNING}')
    if made.get('found'):
        sys.exit(EXIT_FOUND)


def run() -> None:
    """Entry point."""
    start(main, parse)


if __name__ == '__main__':
    run()
