"""Our own tables: every method here, by data, by epsilon, and by the number of records."""

from dpaf_jax.tables.papers.methods import recommended, row
from dpaf_jax.tables.spec import Table

NAMES = (
    'DPAF', 'DPGEN', 'DPDM', 'FETA', 'G-PATE', 'DataLens', 'PATE-GAN', 'DPBA-WGAN', 'DP-GAN',
    'DP-CGAN', 'GS-WGAN', 'DP-MERF', 'DP-Kernel', 'DP-HP', 'PEARL', 'NDPDC', 'DP-Sinkhorn',
    'P3GM',
)  # fmt: skip
METHODS = (*map(row, NAMES), recommended())
GREY = ('mnist', 'fashion_mnist')
TABLES = (
    Table(
        name='ours/methods',
        title='Every method here',
        source='our own',
        rows=METHODS,
        data=GREY,
    ),
    Table(
        name='ours/epsilon',
        title='By epsilon',
        source='our own',
        rows=(row('DP-MERF'), recommended()),
        data=GREY,
        epsilons=(0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    ),
    Table(
        name='ours/records',
        title='By the number of records',
        source='our own',
        rows=(row('DP-MERF'), recommended()),
        data=('mnist',),
        epsilons=(1.0, 10.0),
        records=(1500, 5000, 15000, 0),
    ),
)
