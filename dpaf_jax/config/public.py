"""The config as it may be released: without paths, with its own method's fields alone."""

import copy
import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from dpaf_jax.config.data import IMAGE_PATHS, TABLE_PATHS
from dpaf_jax.config.reading import check, read_config
from dpaf_jax.config.schema import METHOD_SECTIONS, Config, sections_of
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.version import VERSION

# What `public_source` leaves of any source.
PUBLIC_SOURCE = (
    rf'digits|{"|".join(IMAGE_PATHS + TABLE_PATHS)}'
    r'|tfds:[a-z][a-zA-Z0-9_./:+-]*|private:[0-9.e-]{1,9}'
)


# Fields that came later than the first releases, all of a line together, and what those did.
ADDED: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        'evaluation',
        {
            'suite': 'quick',
            'fidelity_images': 0,
            'neighbours': 3,
            'datalens_epochs': 600,
            'datalens_batch_size': 512,
        },
    ),
    ('evaluation', {'inception_weights': ''}),
    # Classes had numbers alone, each picture stood for itself, and was cropped.
    (
        'data',
        {
            'class_names': '',
            'group': '',
            'fit': 'crop',
            'window': '',
            'noisy_prior': 0.0,
        },
    ),
    ('data', {'subset': 0}),
    ('dp_gan', {'network': 'dcgan'}),
    ('dpgen', {'labeller_steps': 3000}),
    ('dpaf.head', {'steps': 1, 'memory': 1, 'penalty': 0.0}),
    ('dpaf.head', {'begins_at_zero': True}),
    ('dpaf.classifier', {'features': 'wavelet'}),
    ('dpaf.conv2', {'with_conv1': False}),
    ('dpaf.generator', {'denoise': 0.0}),
    ('dpaf.generator', {'warp_of_few': 0.0}),
    ('dpaf', {'signs': False, 'activation': 'leaky_relu'}),
    ('dpaf', {'axes': 'none'}),
    ('dpaf', {'mirrored': False}),
    ('dpaf', {'warm_start': '', 'warm_start_parts': 'both', 'warm_start_classes': 1}),
    ('gs_wgan', {'critics_per_turn': 1, 'cell': 1}),
)


def completed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A released config with the fields, all or none of a line of ADDED, that came later."""
    made = copy.deepcopy(dict(fields))
    for where, later in ADDED:
        section: Any = made
        for name in where.split('.'):
            section = section.get(name) if isinstance(section, dict) else None
        if isinstance(section, dict) and not section.keys() & later.keys():
            section.update(later)
    return made


def from_public_dict(fields: Mapping[str, Any]) -> Config:
    """Reads the config of a release: without paths, and with its own method's fields alone.

    Raises:
        UserError: it does not fit this version of the package.
    """
    fields = completed(fields)
    version = fields.pop('version', 'unknown')
    try:
        return read_config(fields)
    except UserError as error:
        if version == VERSION:
            raise
        raise UserError(
            'version',
            f'is {version}, here it is {VERSION}: {str(error).rstrip(".")}',
            f'Install version {version}'
            if version != 'unknown'
            else 'Install the version that wrote it',
        ) from error


def check_public(config: Config) -> None:
    """The checks of a config at its door, for a released one, whose paths are gone.

    Other paths stand in for them. So private images under another name are not found out
    where only a path would tell; where a source has none, they are.

    Raises:
        UserError: a run would have refused it.
    """
    data = dataclasses.replace(
        config.data, source=_with_path(config.data.source, 'data')
    )
    with_paths = dataclasses.replace(config, data=data)
    if start := config.warm_start:
        section = getattr(config, config.method)
        section = dataclasses.replace(section, warm_start=_with_path(start, 'public'))
        with_paths = dataclasses.replace(with_paths, **{config.method: section})
    check(with_paths)


def _with_path(source: str, path: str) -> str:
    has_one = source in IMAGE_PATHS + TABLE_PATHS
    return f'{source}:{path}' if has_one else source


def to_dict(config: Config) -> dict[str, Any]:
    """The inverse of `from_config_dict`, as plain JSON values."""
    return dataclasses.asdict(config)


def public_dict(config: Config) -> dict[str, Any]:
    """The config as it may be released: no path in it, and who wrote it."""
    fields = json.loads(json.dumps(_without_paths(config)))
    for (section, name), text in _spelt(config).items():
        fields[section][name] = text
    if not config.privacy.is_private:
        fields['privacy']['epsilon'] = 'inf'
    if not config.data.columns:  # of tables alone, and any text would do
        fields['data']['label'] = type(config.data).label
    others = set(METHOD_SECTIONS) - set(sections_of(config.method))
    own = {name: value for name, value in fields.items() if name not in others}
    return {'version': VERSION, **own}


def _spelt(config: Config) -> dict[tuple[str, str], str]:
    """Texts that are read as lists or numbers, spelt in the one way a release has.

    Blanks and digits without end would carry any message past whoever reads them.
    """
    made = {
        ('privacy', 'budgets'): ','.join(
            map(_budget, config.privacy.budgets.split(','))
        ),
        ('data', 'columns'): ','.join(
            f'{column.name}:{_digits(column.low)}:{_digits(column.high)}'
            for column in config.data.table
        ),
        ('networks', 'layers'): re.sub(
            r'\d+', lambda number: str(int(number[0])), config.networks.layers
        ),
    }
    if levels := config.data.grey_levels:
        made['data', 'window'] = ':'.join(map(_digits, levels))
    if 'dpaf' in sections_of(config.method):
        made['dpaf', 'taps'] = ','.join(config.dpaf.tap_names)
    return made


def _budget(entry: str) -> str:
    number, percent, _ = entry.strip().partition('%')
    return number if number == 'rest' else _digits(float(number)) + percent


def _digits(number: float) -> str:
    return f'{number:.15g}'


def _without_paths(section: Any) -> dict[str, Any]:
    """The fields of a section: of a path nothing, of a source its kind."""
    made = {}
    for field in dataclasses.fields(section):
        value, holds = getattr(section, field.name), field.metadata.get('holds')
        if dataclasses.is_dataclass(value):
            value = _without_paths(value)
        elif holds == 'path':
            value = ''
        elif holds == 'source':
            value = public_source(value)
        made[field.name] = value
    return made


def public_source(source: str) -> str:
    """A source of images without the path in it."""
    kind = source.partition(':')[0]
    if kind == 'private':  # a share of the private images: a number
        return source
    # A TFDS name is public; everything else behind the colon or the @ is a path.
    return source.partition('@')[0] if kind == 'tfds' else kind
