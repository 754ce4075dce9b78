"""Labels out of attributes of a face: config.data.attribute."""

from collections.abc import Mapping

from dpaf_jax.config import DataConfig
from dpaf_jax.runtime.errors import UserError

CLASS_NAMES = {
    'gender': ('female', 'male'),
    'hair': ('black', 'blond', 'brown'),
}
_HAIR = ('Black_Hair', 'Blond_Hair', 'Brown_Hair')
CELEBA_COLUMNS = {'gender': ('Male',), 'hair': _HAIR}


def check_attribute(config: DataConfig, *choices: str) -> None:
    """Refuses an attribute that the source lacks, and one that it would ignore.

    Args:
        config: with the attribute asked for.
        *choices: what the source offers; none for a source without attributes.

    Raises:
        UserError: naming `config.data.attribute`.
    """
    if config.attribute not in (choices or ('',)):
        words = ' or '.join(repr(c) for c in choices) or "''"
        raise UserError(
            'config.data.attribute',
            f'is {config.attribute!r}',
            f'For {config.source} set it to {words}',
        )


def celeba_label(attribute: str, flags: Mapping[str, bool]) -> int | None:
    """The class of one CelebA face, a function of its own attributes alone.

    Args:
        attribute: 'gender' or 'hair'.
        flags: the face's attributes, by CelebA's names.

    Returns:
        The label; None for a face that counts as an empty record: of the three hair
        colours not exactly one is true.
    """
    if attribute == 'gender':
        return int(flags['Male'])
    colours = [flags[name] for name in _HAIR]
    return colours.index(True) if sum(colours) == 1 else None
