"""The config as it may be released: without paths, with its own method's fields alone."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from dpaf_jax.config.schema import (
    METHOD_SECTIONS,
    WARM_METHODS,
    Config,
    check,
    read_config,
    sections_of,
)
from dpaf_jax.runtime.errors import UserError
from dpaf_jax.runtime.version import VERSION

# What `public_source` leaves of any source.
PUBLIC_SOURCE = (
    'digits|folder|npz|celeba|ffhq|table'
    r'|tfds:[a-z][a-zA-Z0-9_./:+-]*|private:[0-9.e-]{1,9}'
)


# What the head of earlier releases did, before it was a choice.
EARLIER_HEAD = {'steps': 1, 'memory': 1, 'penalty': 0.0}
# Their classes had numbers alone, each picture stood for itself, and was cropped.
EARLIER_DATA = {
    'class_names': '',
    'group': '',
    'fit': 'crop',
    'window': '',
    'noisy_prior': 0.0,
}
EARLIER_SUBSET = {'subset': 0}
EARLIER_CLASSIFIER = {'features': 'wavelet'}
EARLIER_CONV2 = {'with_conv1': False}
EARLIER_GENERATOR = {'denoise': 0.0}
EARLIER_WARP = {'warp_of_few': 0.0}
EARLIER_DPAF = {'signs': False, 'activation': 'leaky_relu'}
EARLIER_AXES = {'axes': 'none'}
EARLIER_MIRRORED = {'mirrored': False}
EARLIER_DP_GAN = {'network': 'dcgan'}
EARLIER_DPGEN = {'labeller_steps': 3000}
COLD_START = {'warm_start': '', 'warm_start_parts': 'both', 'warm_start_classes': 1}
EARLIER_GS_WGAN = {'critics_per_turn': 1, 'cell': 1}
# How they were evaluated.
EARLIER_EVALUATION = {
    'suite': 'quick',
    'fidelity_images': 0,
    'neighbours': 3,
    'datalens_epochs': 600,
    'datalens_batch_size': 512,
}
EARLIER_INCEPTION = {'inception_weights': ''}


def completed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A released config with the fields, all or none of a section, that came after it."""
    made = dict(fields)
    _complete(made, 'evaluation', EARLIER_EVALUATION)
    _complete(made, 'evaluation', EARLIER_INCEPTION)
    _complete(made, 'data', EARLIER_DATA)
    _complete(made, 'data', EARLIER_SUBSET)
    _complete(made, 'dp_gan', EARLIER_DP_GAN)
    _complete(made, 'dpgen', EARLIER_DPGEN)
    if isinstance(made.get('dpaf'), dict):
        made['dpaf'] = dict(made['dpaf'])
        _complete(made['dpaf'], 'head', EARLIER_HEAD)
        _complete(made['dpaf'], 'classifier', EARLIER_CLASSIFIER)
        _complete(made['dpaf'], 'conv2', EARLIER_CONV2)
        _complete(made['dpaf'], 'generator', EARLIER_GENERATOR)
        _complete(made['dpaf'], 'generator', EARLIER_WARP)
        _complete(made, 'dpaf', EARLIER_DPAF)
        _complete(made, 'dpaf', EARLIER_AXES)
        _complete(made, 'dpaf', EARLIER_MIRRORED)
        _complete(made, 'dpaf', COLD_START)
    _complete(made, 'gs_wgan', EARLIER_GS_WGAN)
    return made


def _complete(fields: dict[str, Any], name: str, later: Mapping[str, Any]) -> None:
    section = fields.get(name)
    if isinstance(section, dict) and not section.keys() & later.keys():
        fields[name] = {**section, **later}


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
    has_one = source in ('folder', 'npz', 'celeba', 'ffhq', 'table')
    return f'{source}:{path}' if has_one else source


def to_dict(config: Config) -> dict[str, Any]:
    """The inverse of `from_config_dict`, as plain JSON values."""
    return dataclasses.asdict(config)


def public_dict(config: Config) -> dict[str, Any]:
    """The config as it may be released: no path in it, and who wrote it."""
    fields = json.loads(json.dumps(to_dict(config)))
    if not config.privacy.is_private:
        fields['privacy']['epsilon'] = 'inf'
    fields['data']['source'] = public_source(config.data.source)
    fields['data']['cache'] = ''
    fields['data']['annotations'] = ''
    fields['evaluation']['inception_weights'] = ''
    if not config.data.columns:  # of tables alone, and any text would do
        fields['data']['label'] = type(config.data).label
    for section in WARM_METHODS:
        if section in sections_of(config.method):
            start = getattr(config, section).warm_start
            fields[section]['warm_start'] = public_source(start)
    others = set(METHOD_SECTIONS) - set(sections_of(config.method))
    own = {name: value for name, value in fields.items() if name not in others}
    return {'version': VERSION, **own}


def public_source(source: str) -> str:
    """A source of images without the path in it."""
    kind = source.partition(':')[0]
    if kind == 'private':  # a share of the private images: a number
        return source
    # A TFDS name is public; everything else behind the colon or the @ is a path.
    return source.partition('@')[0] if kind == 'tfds' else kind
