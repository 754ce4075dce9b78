"""Where labelled images come from: one file a kind of source, one line each here."""

from collections.abc import Callable

from dpaf_jax.config import DataConfig
from dpaf_jax.data.sources import celeba, digits, ffhq, folder, npz, table, tfds
from dpaf_jax.data.sources.base import Source, reading
from dpaf_jax.runtime.errors import UserError

# Each takes what stands behind the colon and the config, and lists the records.
SOURCES: dict[str, Callable[[str, DataConfig], Source]] = {
    'digits': digits.open_source,
    'npz': npz.open_source,
    'folder': folder.open_source,
    'tfds': tfds.open_source,
    'celeba': celeba.open_source,
    'ffhq': ffhq.open_source,
    'table': table.open_source,
}


def open_source(config: DataConfig) -> Source:
    """Lists the records of the config's source, without decoding an image.

    Args:
        config: whose `source` is `<kind>` or `<kind>:<path or name>`.

    Raises:
        UserError: for an unknown kind, or whatever the source finds wrong.
    """
    kind, _, rest = config.source.partition(':')
    if kind not in SOURCES:
        raise UserError(
            'config.data.source',
            f'is {config.source!r}',
            f'Start it with one of {", ".join(SOURCES)}',
        )
    with reading(config.source):
        return SOURCES[kind](rest, config)
