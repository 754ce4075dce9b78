"""Whether what a look at the data saw fits what the config states, before more is done."""

import pathlib
import sys

from dpaf_jax.config import DataConfig
from dpaf_jax.config.data import name_problem
from dpaf_jax.data.checks import check_num_classes, check_order
from dpaf_jax.data.decode import MOST_NAMED, bad_pictures
from dpaf_jax.data.manifest import check_num_examples
from dpaf_jax.data.sources.folder import TABLE
from dpaf_jax.data.survey import Survey
from dpaf_jax.runtime.errors import UserError


def check_seen(found: Survey, config: DataConfig) -> None:
    """Refuses what preparing the images would refuse, and names that cannot be published.

    A message has the number of training images only where a terminal shows it.

    Raises:
        UserError: naming the field that was stated, or the source.
    """
    if found.unreadable:
        raise bad_pictures(found.where, found.unreadable)
    if found.deep and not config.window:
        raise _too_deep(found.deep)
    if config.num_classes:
        check_num_classes(found.where, len(found.class_names), config)
    check_order(found.where, found.class_names, config)
    check_num_examples(config, found.num_train, is_told=sys.stderr.isatty())
    if config.class_names == '?':
        _check_names(found)


def _too_deep(names: tuple[str, ...]) -> UserError:
    others = ['others'] if len(names) > MOST_NAMED else []
    listed = ', '.join([*names[:MOST_NAMED], *others])
    have = 'has' if len(names) == 1 else 'have'
    return UserError(
        'config.data.window',
        f"is '', but {listed} {have} more than 8 bits a channel",
        'Replace or remove such pictures, or state the grey levels that become black and '
        'white: --config.data.window=0:4095',
    )


def _check_names(found: Survey) -> None:
    """Whether the classes' own names can be their public ones."""
    for name in found.class_names:
        if problem := name_problem(name):
            table = pathlib.Path(found.where) / TABLE
            raise UserError(
                str(table if table.exists() else found.where),
                f'has a class {name!r}, which {problem}: that is no public name',
                'Rename it, or keep the names unknown: --config.data.class_names= (empty)',
            )
