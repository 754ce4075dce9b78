"""Generative methods: one module each, with `plan(config, N)` and `train(config, ...)`."""

import dataclasses
from types import ModuleType

from dpaf_jax.config import Config
from dpaf_jax.methods import dp_gan, dp_merf, dpaf, dpba_wgan, dpgen, g_pate, gs_wgan
from dpaf_jax.privacy.plan import ONE_GROUP, ONE_RECORD, PrivacyPlan
from dpaf_jax.runtime.errors import UserError

METHODS: dict[str, ModuleType] = {
    'dpaf': dpaf,
    'dpgen': dpgen,
    'dp_merf': dp_merf,
    'dp_gan': dp_gan,
    'g_pate': g_pate,
    'dpba_wgan': dpba_wgan,
    'gs_wgan': gs_wgan,
}


def get(name: str) -> ModuleType:
    """The module of a method, with `plan` and `train`.

    Args:
        name: as `config.method` has it.

    Raises:
        UserError: no method has this name.

    Example:
        >>> get('dpaf').__name__
        'dpaf_jax.methods.dpaf'
    """
    if name not in METHODS:
        raise UserError(
            'config.method', f'is {name!r}', f'Choose one of {", ".join(METHODS)}'
        )
    return METHODS[name]


def plan(config: Config, num_examples: int) -> PrivacyPlan:
    """The method's plan; for groups where at most one image of each takes part.

    Args:
        config: with `data.group`.
        num_examples: N, public: of images, or of groups.

    Raises:
        UserError: the config does not fit the method, or epsilon cannot be met.
    """
    made: PrivacyPlan = get(config.method).plan(config, num_examples)
    if not config.data.group:
        return made
    neighbors = made.neighbors.replace(ONE_RECORD, ONE_GROUP)
    return dataclasses.replace(made, neighbors=neighbors)
