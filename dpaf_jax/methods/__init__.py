"""Generative methods: one module each, with `plan(config, N)` and `train(config, ...)`."""

from types import ModuleType

from dpaf_jax.methods import (
    dp_gan,
    dp_hp,
    dp_kernel,
    dp_merf,
    dp_sinkhorn,
    dpaf,
    dpba_wgan,
    dpgen,
    g_pate,
    gs_wgan,
    pearl,
)
from dpaf_jax.runtime.errors import UserError

METHODS: dict[str, ModuleType] = {
    'dpaf': dpaf,
    'dpgen': dpgen,
    'dp_merf': dp_merf,
    'dp_kernel': dp_kernel,
    'dp_hp': dp_hp,
    'pearl': pearl,
    'dp_sinkhorn': dp_sinkhorn,
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
