"""Examples in docstrings of public names print what they say."""

import contextlib
import doctest
import importlib

import pytest
import tiny_runs

MODULES = (
    'config.reading',
    'config.schema',
    'methods',
    'networks.instance_norm',
    'pipeline.outlook',
    'pipeline.synthesize',
    'privacy.accounting.calibration',
    'privacy.accounting.capacity',
    'privacy.accounting.epsilon',
    'privacy.aggregation',
    'privacy.clipping',
    'privacy.grid',
    'privacy.keys',
    'privacy.plan',
    'privacy.sampling',
    'release.bundle',
    'release.drawing',
    'runtime.rates',
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize('name', MODULES)
def test_examples_run(name):
    module = importlib.import_module(f'dpaf_jax.{name}')
    # No digit of epsilon is in its verdict.
    is_rough = name == 'pipeline.outlook'
    with tiny_runs.accounting_grid() if is_rough else contextlib.nullcontext():
        found = doctest.testmod(module, optionflags=FLAGS)
    assert found.attempted and not found.failed
