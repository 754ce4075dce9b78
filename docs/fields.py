"""The reference of config fields, from the typed config itself.

docs/tables.py writes it into docs/reference/fields.md, for readers of the repository. A
Sphinx extension of one hook, this gives each field an anchor on the site.
"""

import dataclasses
import typing
from collections.abc import Iterator
from typing import NamedTuple

from dpaf_jax.config import Config

HEAD = '| field | default | type, range | meaning |\n|---|---|---|---|'


class Field(NamedTuple):
    """One row: what a reader of the table sees."""

    name: str
    default: str
    kind: str
    meaning: str


def describe(field: dataclasses.Field, hint: type) -> Field:
    """The four columns of a field: all that this page reads of the schema."""
    limits = field.metadata
    name = getattr(hint, '__name__', 'float')
    if typing.get_origin(hint) is tuple:
        name = 'tuple of floats'
    kinds = {
        'choices': _choices,
        'low': lambda low: f'≥ {low:g}',
        'above': lambda low: f'> {low:g}',
        'high': lambda high: f'≤ {high:g}',
    }
    limit = ', '.join(make(limits[k]) for k, make in kinds.items() if k in limits)
    kind = limit if 'choices' in limits else f'{name} {limit}'.strip()
    return Field(field.name, f'`{field.default!r}`', kind, limits['doc'])


def _choices(words: tuple[str, ...]) -> str:
    shown = words if len(words) < 20 else words[:3]
    return ', '.join(f'`{word!r}`' for word in shown) + ', …' * (shown != words)


def sections(cls: type, path: str = '') -> Iterator[tuple[str, str, list[Field]]]:
    """(path, purpose, fields) of a config and of the configs in it, in their order."""
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    leaves = [f for f in fields if not dataclasses.is_dataclass(hints[f.name])]
    purpose = (cls.__doc__ or '').splitlines()[0]
    yield path, purpose, [describe(f, hints[f.name]) for f in leaves]
    for field in fields:
        if dataclasses.is_dataclass(hints[field.name]):
            yield from sections(hints[field.name], f'{path}.{field.name}'.strip('.'))


def page(anchored: bool = False) -> str:
    """The sections in Markdown; `anchored`: every field is a target of its whole name."""
    parts = []
    for path, purpose, fields in sections(Config):
        where = f'{path}.' if path else ''
        rows = [
            f'| {_named(where, f.name, anchored)} | {f.default} | {f.kind} '
            f'| {_cell(f.meaning)} |'
            for f in fields
        ]
        title = f'`{path}`' if path else 'The method'
        parts.append('\n'.join([f'## {title}\n\n{purpose}\n', HEAD, *rows]))
    return '\n\n'.join(parts) + '\n'


def _named(where: str, name: str, anchored: bool) -> str:
    return f'[`{name}`]{{id="{where}{name}"}}' if anchored else f'`{name}`'


def _cell(text: str) -> str:
    """Text of a table's cell: `<name>` is no tag, `conv2*` no emphasis."""
    for sign in '<*|':
        text = text.replace(sign, '\\' + sign)
    return text


def _fill(app, docname: str, source: list[str]) -> None:
    if docname == 'reference/fields':
        source[0] = source[0].replace(page(), page(anchored=True))


def setup(app) -> dict[str, bool]:
    """Sphinx's entry."""
    app.connect('source-read', _fill)
    return {'parallel_read_safe': True}
