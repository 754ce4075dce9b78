"""From plain fields to the typed config: each checked by itself, then how they go together."""

import math
import re
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from dpaf_jax.config.data import IMAGES, check_data, check_decided
from dpaf_jax.config.fields import ABSENT, read
from dpaf_jax.config.schema import TABLE_METHODS, WARM_METHODS, Config, sections_of
from dpaf_jax.config.sections import PrivacyConfig
from dpaf_jax.runtime.errors import UserError

# An entry of privacy.budgets.
BUDGET = re.compile(r'rest|(\d+\.?\d*|\.\d+)(e[-+]?\d+)?%?')
LEAST_DELTA = 1e-12  # further out the noise's law is not below the Gaussian mechanism's


def from_config_dict(config: ConfigDict, *, is_open: bool = False) -> Config:
    """Turns a ConfigDict into typed objects.

    Args:
        config: with exactly the fields of `defaults`.
        is_open: fields that say 0, 'from the data', may stay so.

    Returns:
        The frozen `Config`.

    Raises:
        UserError: for an unknown or missing field, a wrong type, a value out of range.

    Example:
        >>> from dpaf_jax.config import defaults
        >>> config = defaults()
        >>> from_config_dict(config).data.shape
        (16, 16, 1)
        >>> config.data.image_size = 2
        >>> from_config_dict(config)
        Traceback (most recent call last):
        dpaf_jax.runtime.errors.UserError: config.data.image_size: is 2. It must be ...
    """
    if not isinstance(config, ConfigDict):
        raise UserError(
            'config',
            f'is of type {type(config).__name__}, no ConfigDict',  # it may be private images
            'Give what get_config() of a file of configs/ returns, such as '
            "recommended.get_config('npz:/path/to/own.npz,1')",
        )
    if is_open:
        return _read(config.to_dict())
    typed = read_config(config.to_dict())
    check(typed)
    return typed


def check(config: Config) -> None:
    """How fields go together, none of them open; UserError where they do not."""
    check_decided(config.data)
    check_data(config.data)
    _check_privacy(config.privacy)
    _check_warm_start(config)
    if config.data.table:
        _check_knows_tables(config)


def read_config(fields: Mapping[str, Any]) -> Config:
    """The typed fields, each checked by itself; UserError for one that does not fit."""
    typed = _read(fields)
    check_decided(typed.data)
    return typed


def _read(fields: Mapping[str, Any]) -> Config:
    typed = read(Config, fields, 'config')
    for name in sections_of(typed.method):
        if getattr(typed, name, typed) is ABSENT:
            problem, remedy = 'is missing', 'Start from configs/default.py'
            raise UserError(f'config.{name}', problem, remedy)
    return typed


def _check_knows_tables(config: Config) -> None:
    if config.method not in TABLE_METHODS:
        problem = f'is {config.method!r}, which knows images alone'
        remedy = f'Use {" or ".join(TABLE_METHODS)} for a table'
        raise UserError('config.method', problem, remedy)
    if config.evaluation.wide_resnet:
        problem = f'is {config.evaluation.wide_resnet!r}, which knows images alone'
        raise UserError('config.evaluation.wide_resnet', problem, "Set it to ''")


def _check_privacy(privacy: PrivacyConfig) -> None:
    # Also where one mechanism takes everything: it is released, and no text may hide in it.
    for entry in privacy.budgets.split(','):
        if not BUDGET.fullmatch(entry.strip()):
            problem, remedy = f'has the entry {entry!r}', "Use '0.1', '20%' or 'rest'"
            raise UserError('config.privacy.budgets', problem, remedy)
    if not privacy.epsilon > 0:
        raise UserError(
            'config.privacy.epsilon', f'is {privacy.epsilon}', 'It must be above 0'
        )
    if not 0 <= privacy.delta < 1:
        raise UserError(
            'config.privacy.delta', f'is {privacy.delta}', 'It must be in (0, 1)'
        )
    if privacy.delta == 0 and privacy.is_private:
        raise UserError(
            'config.privacy.delta',
            'is 0, which no Gaussian mechanism can meet',
            'Use less than 1 / num_examples, such as 1e-5',
        )
    if 0 < privacy.delta < LEAST_DELTA and privacy.is_private:
        raise UserError(
            'config.privacy.delta',
            f'is {privacy.delta:g}; the law of the noise is proven from {LEAST_DELTA:g} on',
            'Use so much or more, below 1 / num_examples',
        )


def _check_warm_start(config: Config) -> None:
    """What is read without noise must be public; only as published may it be private."""
    for section in WARM_METHODS:
        has_one = section in sections_of(config.method)
        start = getattr(config, section).warm_start if has_one else ''
        if start and config.method != section:
            problem = f'is {start!r}, which {config.method} does not start from'
            raise UserError(f'config.{section}.warm_start', problem, "Set it to ''")
    start = config.warm_start
    if not start:
        return
    try:
        share = config.dpgen.private_share if config.method == 'dpgen' else 0.0
    except ValueError:
        share = math.nan
    if config.method == 'dpgen' and start.startswith('private'):
        known = 0 < share <= 1
    else:
        known = re.fullmatch(IMAGES, start) is not None
    where = f'config.{config.method}.warm_start'
    remedy = 'Name a source of public images, or none'
    if not known:
        if config.method == 'dpgen':
            remedy += "; as published also 'private:<share>', such as private:0.1"
        raise UserError(where, f'is {start!r}', remedy)
    if start == config.data.source:
        raise UserError(where, f'is {start!r}, the private images', remedy)
    if share and config.privacy.guarantee == 'certified':
        problem = (
            f'is {start!r}, but a certified run sees private images under noise alone'
        )
        raise UserError(where, problem, remedy)
