"""Generative methods: one module each, with `plan(config, N)` and `train(config, ...)`."""

from types import ModuleType

from dpaf_jax.errors import UserError
from dpaf_jax.methods import dpaf, dpgen

METHODS: dict[str, ModuleType] = {'dpaf': dpaf, 'dpgen': dpgen}


def get(name: str) -> ModuleType:
    """The module of a method; UserError for an unknown name."""
    if name not in METHODS:
        raise UserError(
            'config.method', f'is {name!r}', f'Choose one of {", ".join(METHODS)}'
        )
    return METHODS[name]
