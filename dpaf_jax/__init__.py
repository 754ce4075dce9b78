"""Differentially private image synthesis whose epsilon is true for the code that runs.

import dpaf_jax
release, report = dpaf_jax.synthesize(config, 'runs/digits')
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpaf_jax.runtime.version import VERSION

if TYPE_CHECKING:
    from dpaf_jax.pipeline.outlook import Outlook, plan
    from dpaf_jax.pipeline.synthesize import Pipeline, Result, synthesize
    from dpaf_jax.release.bundle import load_release
    from dpaf_jax.release.drawing import Release
    from dpaf_jax.runtime.errors import UserError

__version__ = VERSION
__all__ = [
    'Outlook',
    'Pipeline',
    'Release',
    'Result',
    'UserError',
    '__version__',
    'load_release',
    'plan',
    'synthesize',
]

_HOMES = {
    'Outlook': 'pipeline.outlook',
    'plan': 'pipeline.outlook',
    'Pipeline': 'pipeline.synthesize',
    'Result': 'pipeline.synthesize',
    'synthesize': 'pipeline.synthesize',
    'Release': 'release.drawing',
    'load_release': 'release.bundle',
    'UserError': 'runtime.errors',
}


def __getattr__(name: str) -> Any:
    # On demand: `main` must choose JAX's platform before JAX is imported, and `sample`
    # needs neither data nor training code.
    if name == 'config':  # whose defaults() messages name
        return importlib.import_module(f'{__name__}.config')
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(f'{__name__}.{_HOMES[name]}'), name)


def __dir__() -> list[str]:
    return sorted(__all__)
