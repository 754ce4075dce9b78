"""Labels out of attributes of a face: config.data.attribute."""

from collections.abc import Mapping

from dpaf_jax.config import CELEBA_FLAGS, DataConfig
from dpaf_jax.runtime.errors import UserError

GENDERS = ('female', 'male')
_HAIR = ('Black_Hair', 'Blond_Hair', 'Brown_Hair')
_COLUMNS = {'gender': ('Male',), 'hair': _HAIR}
CELEBA = ('gender', 'hair', *CELEBA_FLAGS)


def check_attribute(config: DataConfig, *choices: str) -> None:
    """Refuses an attribute that the source lacks, and one that it would ignore.

    Args:
        config: with the attribute asked for.
        *choices: what the source offers; none for a source without attributes.

    Raises:
        UserError: naming `config.data.attribute`.
    """
    if config.attribute not in (choices or ('',)):
        words = ' or '.join(repr(c) for c in choices[:2]) or "''"
        words += ", or to one of CelebA's own, such as 'Smiling'" * (choices == CELEBA)
        raise UserError(
            'config.data.attribute',
            f'is {config.attribute!r}',
            f'For {config.source} set it to {words}',
        )


def celeba_columns(attribute: str) -> tuple[str, ...]:
    """Columns of CelebA's attribute file that decide a face's class."""
    return _COLUMNS.get(attribute, (attribute,))


def celeba_class_names(attribute: str) -> tuple[str, ...]:
    """Names of the classes by label, of any of `CELEBA`."""
    if attribute == 'gender':
        return GENDERS
    if attribute == 'hair':
        return 'black', 'blond', 'brown'
    return f'not {attribute}', attribute


def celeba_label(attribute: str, flags: Mapping[str, bool]) -> int | None:
    """The class of one CelebA face, a function of its own attributes alone.

    Args:
        attribute: one of `CELEBA`.
        flags: the face's attributes, by CelebA's names.

    Returns:
        The label; None for a face that counts as an empty record: of the three hair
        colours not exactly one is true.
    """
    values = [flags[name] for name in celeba_columns(attribute)]
    if len(values) == 1:
        return int(values[0])
    return values.index(True) if sum(values) == 1 else None
