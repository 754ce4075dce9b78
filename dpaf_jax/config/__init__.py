"""The config as typed, frozen objects: read once at the door, checked, then trusted."""

from dpaf_jax.config.data import (
    CELEBA_FLAGS,
    MOST_CLASSES,
    Column,
    DataConfig,
    check_channels,
    check_group,
)
from dpaf_jax.config.public import (
    PUBLIC_SOURCE,
    check_public,
    completed,
    from_public_dict,
    public_dict,
    public_source,
    to_dict,
)
from dpaf_jax.config.reading import from_config_dict
from dpaf_jax.config.schema import (
    MANY_RECORDS,
    METHOD_SECTIONS,
    TABLE_METHODS,
    Config,
    check_is_read,
    defaults,
    sections_of,
)
from dpaf_jax.config.sections import EvaluationConfig, NetworksConfig, PrivacyConfig
from dpaf_jax.config.undecided import undecided

__all__ = [
    'CELEBA_FLAGS',
    'MANY_RECORDS',
    'METHOD_SECTIONS',
    'MOST_CLASSES',
    'PUBLIC_SOURCE',
    'TABLE_METHODS',
    'Column',
    'Config',
    'DataConfig',
    'EvaluationConfig',
    'NetworksConfig',
    'PrivacyConfig',
    'check_channels',
    'check_group',
    'check_is_read',
    'check_public',
    'completed',
    'defaults',
    'from_config_dict',
    'from_public_dict',
    'public_dict',
    'public_source',
    'sections_of',
    'to_dict',
    'undecided',
]
