"""The configs of the repository: each loads, plans, and trains on data of its shape."""

import dataclasses
import pathlib
from unittest import mock

import numpy as np
import pytest
import tiny_runs

from dpaf_jax import methods
from dpaf_jax.config import from_config_dict
from dpaf_jax.privacy import accounting
from dpaf_jax.privacy.plan import CERTIFIED, PrivacyPlan

CANONICAL = {
    'digits': 'canonical',
    'mnist': 'canonical',
    'fashion_mnist': 'canonical',
    'celeba64': 'canonical',
    'ffhq128': 'canonical',
}
ARGUMENTS = [
    *((name, '') for name in CANONICAL),
    *CANONICAL.items(),
    ('celeba64', 'gender'),
    ('celeba64', 'hair'),
    ('celeba64', 'hair,canonical'),
]
PUBLIC_N = {'celeba64': 162770, 'ffhq128': 62500}


def num_examples(config) -> int:
    return (
        config.data.num_examples
        or PUBLIC_N[
            config.data.source.partition(':')[2] + '64'
            if False
            else {'celeba': 'celeba64', 'ffhq': 'ffhq128'}[
                config.data.source.partition(':')[0]
            ]
        ]
    )
