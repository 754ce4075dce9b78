"""Fields of frozen dataclasses with their permitted ranges, and how they are read."""

import dataclasses
import difflib
import math
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from dpaf_jax.runtime.errors import UserError

T = TypeVar('T')
ABSENT: Any = None  # the default of a field that may lack


def plain(default: Any, doc: str, **limits: Any) -> Any:
    """A field: its default and its meaning; `limits` as `read` checks them.

    A number must be finite, unless `infinite` is among them.
    """
    metadata = {'doc': doc, **limits}
    return dataclasses.field(default=default, metadata=metadata)


def private_path(doc: str) -> Any:
    """A path of the owner's machine, empty at first: a release has nothing of it."""
    return plain('', doc, holds='path')


def image_source(default: str, doc: str) -> Any:
    """A source of images, with a path: a release says its kind."""
    return plain(default, doc, holds='source')


def one_of(default: str, choices: tuple[str, ...], doc: str) -> Any:
    """A field that takes one of a few words."""
    return plain(default, doc, choices=choices)


def at_least(default: float, low: float, doc: str) -> Any:
    """A number that is finite and not below `low`."""
    return plain(default, doc, low=low)


def above(default: float, low: float, doc: str) -> Any:
    """A number that is finite and strictly above `low`."""
    return plain(default, doc, above=low)


def between(default: float, low: float, high: float, doc: str) -> Any:
    """A number in the closed interval [low, high]."""
    return plain(default, doc, low=low, high=high)


def nested_defaults(cls: type) -> dict[str, Any]:
    """The default values of a dataclass and of the dataclasses in it."""
    hints = typing.get_type_hints(cls)
    return {
        field.name: nested_defaults(hints[field.name])
        if dataclasses.is_dataclass(hints[field.name])
        else field.default
        for field in dataclasses.fields(cls)
    }


def read(cls: type[T], values: Mapping[str, Any], path: str) -> T:
    """Makes a frozen dataclass of nested mappings, checked.

    Args:
        cls: its fields have types and perhaps limits.
        values: exactly its fields; those with the default ABSENT may lack.
        path: of `values` in the whole, for messages: 'config.data'.

    Raises:
        UserError: an unknown or missing field, a wrong type, a value out of range.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            meant = f'Did you mean {near[0]}? ' if near else ''
            remedy = f'{meant}Fields here: {", ".join(fields)}'
            raise UserError(f'{path}.{name}', 'no such field', remedy)
    made: dict[str, Any] = {}
    for name, field in fields.items():
        where = f'{path}.{name}'
        if name not in values and field.default is ABSENT:
            continue
        if name not in values:
            raise UserError(
                where, 'is missing', 'Start from dpaf_jax.config.defaults()'
            )
        hint, value = hints[name], values[name]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise UserError(
                    where, f'is {value!r}, not a group of fields', 'Set its fields'
                )
            made[name] = read(typing.cast(type, hint), value, where)
        else:
            made[name] = _leaf(hint, value, field.metadata, where)
    return cls(**made)


def _leaf(hint: Any, value: Any, limits: Mapping[str, Any], where: str) -> Any:
    if hint == tuple[float, ...]:
        try:
            made = tuple(float(v) for v in value)
        except (TypeError, ValueError):
            made = (math.nan,)
        if not all(map(math.isfinite, made)):
            raise UserError(where, f'is {value!r}', 'Give a tuple of numbers')
        return made
    is_number = type(value) is int or isinstance(value, float)  # NumPy's is one
    if hint is float and (is_number or value == 'inf'):
        value = float(value)
    if type(value) is not hint:
        raise UserError(where, f'is {value!r}', f'It must be of type {hint.__name__}')
    if 'choices' in limits and value not in limits['choices']:
        words = ', '.join(repr(c) for c in limits['choices'])
        raise UserError(where, f'is {value!r}', f'Choose one of {words}')
    if limits.keys() & {'low', 'above', 'high'}:
        low, high = limits.get('low', -math.inf), limits.get('high', math.inf)
        too_small = value < low or value <= limits.get('above', -math.inf)
        if too_small or value > high or not math.isfinite(value):
            bound = (
                f'above {limits["above"]}' if 'above' in limits else f'at least {low}'
            )
            top = f' and at most {high}' if 'high' in limits else ''
            raise UserError(where, f'is {value}', f'It must be {bound}{top}')
    if hint is float and not (math.isfinite(value) or 'infinite' in limits):
        raise UserError(where, f'is {value}', 'It must be a finite number')
    return value
