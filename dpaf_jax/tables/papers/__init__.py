"""Every table: the papers', and our own in the same form."""

from dpaf_jax.runtime.errors import UserError
from dpaf_jax.tables.papers import dpaf, dpba_wgan, dpgen, g_pate, ours
from dpaf_jax.tables.spec import Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *dpaf.TABLES,
        *dpgen.TABLES,
        *g_pate.TABLES,
        *dpba_wgan.TABLES,
        *ours.TABLES,
    )
}


def find(name: str) -> list[Table]:
    """The table of that name; all of a paper by 'dpaf'; 'all' for every one.

    Raises:
        UserError: there is none.
    """
    found = [
        table
        for key, table in TABLES.items()
        if name in (key, key.partition('/')[0], 'all')
    ]
    if not found:
        known = ', '.join(TABLES)
        raise UserError('--table', f'is {name!r}', f'Choose from {known}')
    return found
